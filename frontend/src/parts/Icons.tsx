/** Small pictures. They say nothing that the text next to them does not say. */
import type { ReactNode } from "react";
import type { Health } from "../api/client";

function Icon({ children, className = "icon" }: { children: ReactNode; className?: string }) {
  return (
    <svg
      className={className}
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

const RING = <circle cx="8" cy="8" r="6.2" />;

/** Each health has a shape of its own, so that nobody needs the colour. */
const SHAPES: Record<Health, ReactNode> = {
  failing: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" stroke="none" />
      <path d="M5.6 5.6l4.8 4.8m0-4.8l-4.8 4.8" stroke="var(--card)" />
    </>
  ),
  late: (
    <>
      {RING}
      <path d="M8 4.6V8l2.3 1.6" />
    </>
  ),
  waiting: (
    <path d="M4.5 2.2h7m-7 11.6h7M5.4 2.2c0 4 5.2 4 5.2 5.8s-5.2 1.8-5.2 5.8m5.2-11.6c0 4-5.2 4-5.2 5.8s5.2 1.8 5.2 5.8" />
  ),
  unknown: (
    <>
      <circle cx="8" cy="8" r="6.2" strokeDasharray="2.4 2.4" />
      <path d="M6.5 6.3a1.5 1.5 0 1 1 2.3 1.3c-.5.3-.8.6-.8 1.2m0 2v.05" />
    </>
  ),
  new: (
    <>
      {RING}
      <path d="M8 5v6M5 8h6" />
    </>
  ),
  paused: <path d="M5.7 3.8v8.4m4.6-8.4v8.4" strokeWidth="2.2" />,
  tiering: <path d="M8 1.8a6.2 6.2 0 1 1-6.2 6.2" className="spin" />,
  ok: (
    <>
      {RING}
      <path d="M5.4 8.2l1.8 1.8 3.4-3.8" />
    </>
  ),
};

export function HealthIcon({ health }: { health: Health }) {
  return <Icon className={`icon health-${health}`}>{SHAPES[health]}</Icon>;
}

export const SearchIcon = () => (
  <Icon>
    <circle cx="7" cy="7" r="4.5" />
    <path d="M10.5 10.5L14 14" />
  </Icon>
);
export const RefreshIcon = ({ isTurning }: { isTurning: boolean }) => (
  <Icon className={isTurning ? "icon turning" : "icon"}>
    <path d="M13.5 8a5.5 5.5 0 1 1-1.7-4M13.5 1.8v2.7h-2.7" />
  </Icon>
);
export const MoreIcon = () => (
  <Icon>
    <path d="M3.5 8h.01M8 8h.01M12.5 8h.01" strokeWidth="2.4" />
  </Icon>
);
export const CopyIcon = () => (
  <Icon>
    <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
    <path d="M3.2 10.5h-.2a1 1 0 0 1-1-1V3.5a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v.2" />
  </Icon>
);
export const OutsideIcon = () => (
  <Icon>
    <path d="M9.5 2.5h4v4m0-4L8 8M6.5 3.5h-3a1 1 0 0 0-1 1v8a1 1 0 0 0 1 1h8a1 1 0 0 0 1-1v-3" />
  </Icon>
);
export const SunIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="3" />
    <path d="M8 1v1.2m0 11.6V15M1 8h1.2m11.6 0H15M3 3l.9.9m8.2 8.2l.9.9m0-10l-.9.9M3.9 12.1L3 13" />
  </Icon>
);
export const MoonIcon = () => (
  <Icon>
    <path d="M13.5 9.5A5.8 5.8 0 0 1 6.5 2.5a5.8 5.8 0 1 0 7 7z" />
  </Icon>
);
export const SystemIcon = () => (
  <Icon>
    <rect x="1.8" y="2.5" width="12.4" height="8.5" rx="1.2" />
    <path d="M5.5 13.8h5" />
  </Icon>
);
/** The sign of the page: water that runs into a lake. */
export const Sign = () => (
  <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
    <rect width="20" height="20" rx="5" fill="var(--accent)" />
    <path
      d="M4 7.5c2 0 2-1.5 4-1.5s2 1.5 4 1.5 2-1.5 4-1.5M4 11c2 0 2-1.5 4-1.5S10 11 12 11s2-1.5 4-1.5M4 14.5c2 0 2-1.5 4-1.5s2 1.5 4 1.5 2-1.5 4-1.5"
      fill="none"
      stroke="var(--card)"
      strokeWidth="1.5"
      strokeLinecap="round"
    />
  </svg>
);
