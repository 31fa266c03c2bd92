/** The answers of actions. A success leaves by itself; a failure stays until it is closed. */
import { useEffect, useState } from "react";
import { Commands } from "./Commands";

export type NewToast =
  | { kind: "done"; message: string; url: string | null }
  | { kind: "failed"; message: string; title: string; again: () => void };

export type Toast = NewToast & { id: number };

const SHOWN_MS = 10_000;

export function Toasts({ toasts, onClose }: { toasts: Toast[]; onClose: (id: number) => void }) {
  const done = toasts.filter((each) => each.kind === "done");
  const failed = toasts.filter((each) => each.kind === "failed");
  return (
    <div className="toasts">
      {/* Both regions are there before their first message: otherwise readers stay silent. */}
      <div role="alert">
        {failed.map((each) => (
          <FailedToast key={each.id} toast={each} onClose={onClose} />
        ))}
      </div>
      <div role="status">
        {done.map((each) => (
          <DoneToast key={each.id} toast={each} onClose={onClose} />
        ))}
      </div>
    </div>
  );
}

interface ToastProps<Kind> {
  toast: Extract<Toast, { kind: Kind }>;
  onClose: (id: number) => void;
}

function FailedToast({ toast, onClose }: ToastProps<"failed">) {
  return (
    <div className="toast failed">
      <div className="toast-text">
        <strong>{toast.title}</strong>
        <p>
          <Commands text={toast.message} />
        </p>
        <button
          type="button"
          className="button"
          onClick={() => {
            onClose(toast.id);
            toast.again();
          }}
        >
          Try again
        </button>
      </div>
      <Close id={toast.id} onClose={onClose} />
    </div>
  );
}

function DoneToast({ toast, onClose }: ToastProps<"done">) {
  const [isHeld, setHeld] = useState(false); // a pointer or the focus is on it
  useEffect(() => {
    if (isHeld) return;
    const timer = window.setTimeout(() => onClose(toast.id), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [isHeld, onClose, toast.id]);
  return (
    <div
      className="toast done"
      onPointerEnter={() => setHeld(true)}
      onPointerLeave={() => setHeld(false)}
      onFocus={() => setHeld(true)}
      onBlur={() => setHeld(false)}
    >
      <div className="toast-text">
        <p>
          <Commands text={toast.message} />
        </p>
        {toast.url && (
          <p>
            <a href={toast.url}>Open the run</a>
          </p>
        )}
      </div>
      <Close id={toast.id} onClose={onClose} />
    </div>
  );
}

function Close({ id, onClose }: { id: number; onClose: (id: number) => void }) {
  return (
    <button type="button" className="toast-close" aria-label="Close" onClick={() => onClose(id)}>
      ×
    </button>
  );
}
