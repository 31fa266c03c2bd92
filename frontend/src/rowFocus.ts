/** Where the focus goes when the row that has it is gone: without this, to the page's very begin. */
import { useEffect, useRef, type RefObject } from "react";

/**
 * Moves the focus to the row that is in the place of the one that is gone, else to the heading.
 *
 * @param box around the rows, which have their keys as `data-key`
 * @param keys of the rows that are shown
 */
export function useRowFocus(box: RefObject<HTMLElement | null>, keys: string[]): void {
  const left = useRef<{ key: string; at: number } | null>(null);
  const shown = keys.join("\n");

  useEffect(() => {
    const note = (event: FocusEvent) => {
      const target = event.target as Element;
      if (target.closest("dialog")) return; // it gives the focus back
      const row = box.current?.contains(target) ? target.closest<HTMLElement>("[data-key]") : null;
      const key = row?.dataset.key;
      left.current = row && key ? { key, at: rowsOf(box.current).indexOf(row) } : null;
    };
    const look = () => follow(left, box.current);
    document.addEventListener("focusin", note);
    document.addEventListener("close", look, true); // of a dialog, which does not bubble
    return () => {
      document.removeEventListener("focusin", note);
      document.removeEventListener("close", look, true);
      follow(left, null); // the last row is gone, and the list with it
    };
  }, [box]);
  useEffect(() => follow(left, box.current), [box, shown]);
}

function rowsOf(box: HTMLElement | null): HTMLElement[] {
  return [...(box?.querySelectorAll<HTMLElement>("[data-key]") ?? [])];
}

function follow(
  left: RefObject<{ key: string; at: number } | null>,
  box: HTMLElement | null,
): void {
  const rows = rowsOf(box);
  const was = left.current;
  if (!was || rows.some((row) => row.dataset.key === was.key)) return;
  const { activeElement: active, body } = document;
  const isLost = !active || active === body || !active.isConnected;
  if (!isLost || document.querySelector("dialog[open]")) return;
  left.current = null;
  const next = rows[Math.min(was.at, rows.length - 1)];
  const target = next?.querySelector<HTMLElement>("a[href], button");
  if (target) {
    target.focus();
    return;
  }
  const heading = document.querySelector<HTMLElement>("h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}
