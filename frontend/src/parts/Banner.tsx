/** A message across the page that stays until its cause is gone. */
import type { ReactNode } from "react";

interface Props {
  kind: "warning" | "error" | "news";
  children: ReactNode;
  /** What changes all the time: screen readers must not announce it again and again. */
  aside?: ReactNode;
  action?: ReactNode;
}

const ROLES = { error: "alert", warning: "status", news: undefined };

export function Banner({ kind, children, aside, action }: Props) {
  return (
    <div className={`banner ${kind}`}>
      <div className="banner-text">
        <span role={ROLES[kind]}>{children}</span> {aside}
      </div>
      {action}
    </div>
  );
}
