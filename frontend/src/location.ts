/** Where the page is: path and search, both inside the hash, as in `#/?health=failing`. */
import { useSyncExternalStore } from "react";

export function pathOf(hash: string): string {
  return `/${hash.replace(/^#?\/?/, "").split("?")[0]}`;
}

export function searchOf(hash: string): string {
  const at = hash.indexOf("?");
  return at < 0 ? "" : hash.slice(at + 1);
}

interface Options {
  replace?: boolean;
}

let linked: string | null = null;

/** Whether a link of the page led to this path, rather than Back or another address. */
export function wasLinked(to: string): boolean {
  return linked === to;
}

/** Goes to a path, with its search: `/?health=failing`. */
export function navigate(to: string, { replace = false }: Options = {}): void {
  const oldURL = location.href;
  const url = new URL(oldURL);
  url.hash = to.startsWith("/") ? to : `/${to}`;
  if (url.href === oldURL) return;
  linked = pathOf(url.hash);
  history[replace ? "replaceState" : "pushState"](null, "", url.href);
  dispatchEvent(new HashChangeEvent("hashchange", { oldURL, newURL: url.href }));
}

addEventListener("popstate", () => (linked = null));

function subscribe(changed: () => void): () => void {
  addEventListener("hashchange", changed);
  return () => removeEventListener("hashchange", changed);
}

const path = () => pathOf(location.hash);
const search = () => searchOf(location.hash);

/** For wouter's router. */
export function useHashLocation(): [string, typeof navigate] {
  return [useSyncExternalStore(subscribe, path), navigate];
}
useHashLocation.hrefs = (href: string) => `#${href}`;

/** The search of the hash, without `?`. */
export function useHashSearch(): string {
  return useSyncExternalStore(subscribe, search);
}
