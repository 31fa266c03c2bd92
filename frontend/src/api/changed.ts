/** What this browser has changed: each process of a server reads the cluster by itself. */

/** By then each process has read the table again, asked or not. */
const KEPT_MS = 60_000;
/** The server takes no more in one request. */
const MAX = 8;

interface Change {
  /** The server's time. */
  changedMs: number;
  notedMs: number;
}

const changes = new Map<string, Change>();

/** Remembers that an action has changed a table. */
export function noteChanged(path: string, changedMs: number | null | undefined): void {
  changes.delete(path); // to the end
  if (changedMs != null) changes.set(path, { changedMs, notedMs: performance.now() });
  for (const [old] of changes) {
    if (changes.size <= MAX) break;
    changes.delete(old);
  }
}

/** The header that makes an answer as new as these changes; null: there was none lately. */
export function changedHeader(): string | null {
  const now = performance.now();
  for (const [path, { notedMs }] of changes) if (now - notedMs > KEPT_MS) changes.delete(path);
  if (changes.size === 0) return null;
  return [...changes].map(([path, { changedMs }]) => `${path}@${changedMs}`).join(",");
}
