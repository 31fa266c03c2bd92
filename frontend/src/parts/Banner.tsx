/** A message across the page that stays until its cause is gone. */
import type { ReactNode } from "react";

interface Props {
  kind: "warning" | "error" | "news";
  children: ReactNode;
  action?: ReactNode;
}

export function Banner({ kind, children, action }: Props) {
  return (
    <div className={`banner ${kind}`} role={kind === "error" ? "alert" : "status"}>
      <div className="banner-text">{children}</div>
      {action}
    </div>
  );
}
