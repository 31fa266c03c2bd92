/** The server's time in the browser: ages must not depend on the clock of this machine. */
import { useSyncExternalStore } from "react";

const TICK_MS = 1_000;

let offsetMs = 0;
let nowMs = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function tick(): void {
  nowMs = Date.now() + offsetMs;
  for (const changed of listeners) changed();
}

/** @param serverMs the server's clock in an answer that came at `atMs` of this machine's clock */
export function setServerTime(serverMs: number, atMs: number): void {
  offsetMs = serverMs - atMs;
  tick();
}

function subscribe(changed: () => void): () => void {
  listeners.add(changed);
  timer ??= setInterval(tick, TICK_MS);
  return () => {
    listeners.delete(changed);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The server's time in epoch milliseconds, anew each second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => nowMs);
}
