/** Where a view begins for who cannot see that it changed: the focus goes to its heading. */
import { useLayoutEffect, useRef } from "react";
import { wasLinked } from "./location";

/** Until the heading of a view that loads has taken its place. */
const FOLLOWED_MS = 10_000;

/** @param at the path of the view; the first one leaves the focus to the browser */
export function useViewFocus(at: string): void {
  const before = useRef(at);
  useLayoutEffect(() => {
    if (before.current === at) return;
    before.current = at;
    if (wasLinked(at)) window.scrollTo(0, 0); // after Back, the browser restores the position
    return followHeading();
  }, [at]);
}

/** Keeps the focus on the heading, also when it is drawn anew, until the user does something. */
function followHeading(): () => void {
  let isFirst = true;
  const look = () => {
    const heading = document.querySelector<HTMLElement>("#content h1");
    if (!heading || !(isFirst || document.activeElement === document.body)) return;
    isFirst = false;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  };
  const watcher = new MutationObserver(look);
  const stop = () => {
    clearTimeout(timer);
    watcher.disconnect();
    for (const kind of DONE) removeEventListener(kind, stop, true);
  };
  const timer = setTimeout(stop, FOLLOWED_MS);
  for (const kind of DONE) addEventListener(kind, stop, true);
  watcher.observe(document.getElementById("content")!, { childList: true, subtree: true });
  look();
  return stop;
}

const DONE = ["keydown", "pointerdown"] as const;
