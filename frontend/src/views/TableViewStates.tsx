/** What a view shows in place of its data: loading, failed, and nothing there. */
import type { ReactNode } from "react";
import { Commands } from "../parts/Commands";
import { useIsTold } from "../parts/Old";

interface SkeletonProps {
  /** What is being read, for screen readers. */
  what: string;
  lines?: number;
}

export function Skeleton({ what, lines = 4 }: SkeletonProps) {
  return (
    <div className="skeleton" role="status">
      <span className="hidden">Reading {what}…</span>
      {Array.from({ length: lines }, (_, i) => (
        <div key={i} className="skeleton-line" aria-hidden="true" />
      ))}
    </div>
  );
}

interface FailedProps {
  what: string;
  error: Error;
  onRetry: () => void;
}

export function Failed({ what, error, onRetry }: FailedProps) {
  const isTold = useIsTold(error);
  return (
    <div className="state failed-state" role="alert">
      <h2>{what} could not be read</h2>
      {!isTold && (
        <p className="whole">
          <Commands text={error.message} />
        </p>
      )}
      <button type="button" className="button" onClick={onRetry}>
        Read again
      </button>
    </div>
  );
}

export function Nothing({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
