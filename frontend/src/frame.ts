/**
 * The page inside a frame of another page, as Airflow shows it. A foreign page refuses every look
 * at it; then the page works alone.
 */

/** The page around this one, if it is of the same origin. */
export function sameOriginParent(self: Window = window): Window | null {
  try {
    const { parent } = self;
    if (parent === self || parent.location.origin !== self.location.origin) return null;
    return parent.document ? parent : null;
  } catch {
    return null;
  }
}

/**
 * Keeps the hash of the page around this one equal to this page's, so that its address can be
 * shared. Starts from the other one's.
 */
export function shareHash(self: Window = window, parent = sameOriginParent(self)): () => void {
  if (!parent) return () => {};
  const read = () => {
    const { hash } = parent.location;
    if (!hash.startsWith("#/") || hash === self.location.hash) return;
    const oldURL = self.location.href;
    self.history.replaceState(null, "", hash);
    self.dispatchEvent(new HashChangeEvent("hashchange", { oldURL, newURL: self.location.href }));
  };
  const write = () => {
    const hash = self.location.hash || "#/";
    if (hash === parent.location.hash || (hash === "#/" && !parent.location.hash)) return;
    const { pathname, search } = parent.location;
    parent.history.replaceState(parent.history.state, "", `${pathname}${search}${hash}`);
  };
  const [safeRead, safeWrite] = [harmless(read), harmless(write)];
  safeRead();
  safeWrite();
  self.addEventListener("hashchange", safeWrite);
  parent.addEventListener("hashchange", safeRead);
  return () => {
    self.removeEventListener("hashchange", safeWrite);
    parent.removeEventListener("hashchange", safeRead);
  };
}

/** Another page must never break this one. */
function harmless(step: () => void): () => void {
  return () => {
    try {
      step();
    } catch (error) {
      console.warn("the page around this one cannot be reached", error);
    }
  };
}

/** Whether the page around this one is dark; null if that cannot be seen. */
export function parentScheme(parent: Window | null): "light" | "dark" | null {
  if (!parent) return null;
  try {
    const root = parent.document.documentElement;
    const named = [...root.classList, root.dataset.theme, root.style.colorScheme];
    for (const name of named) if (name === "dark" || name === "light") return name;
  } catch {
    return null;
  }
  return null;
}

/** The dark colour behind this page in the page around it; null if there is none in sight. */
export function parentDarkness(parent: Window | null): string | null {
  if (!parent) return null;
  try {
    const { body, documentElement } = parent.document;
    const colors = [body, documentElement].map((each) => parent.getComputedStyle(each));
    return colors.map((each) => each.backgroundColor).find(isDark) ?? null;
  } catch {
    return null;
  }
}

/** Whether texts can be read on a colour as browsers write it: opaque, and hardly any light. */
function isDark(color: string): boolean {
  const rgb = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(color)?.slice(1).map(Number);
  if (rgb) return Math.max(...rgb) <= 56;
  const lightness = /^oklch\(([\d.]+) [\d.]+ [\d.]+\)$/.exec(color)?.[1];
  return lightness !== undefined && Number(lightness) <= 0.26;
}

/** Calls back when the page around this one may have changed between light and dark. */
export function watchScheme(parent: Window | null, changed: () => void): () => void {
  if (!parent) return () => {};
  try {
    const watcher = new MutationObserver(changed);
    watcher.observe(parent.document.documentElement, {
      attributeFilter: ["class", "data-theme", "style"],
    });
    return () => watcher.disconnect();
  } catch {
    return () => {};
  }
}

/**
 * Opens links that lead out of this page in the page around it: a frame with a sandbox may not
 * navigate it, but a link of its own document may.
 */
export function openLinksOutside(self: Window = window, parent = sameOriginParent(self)): void {
  if (!parent) return;
  self.document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a[href]") as HTMLAnchorElement | null;
    if (!link || event.defaultPrevented || event.button !== 0 || link.hasAttribute("download"))
      return;
    if (isInside(link.href, self.location.href)) return;
    event.preventDefault();
    const copy = parent.document.createElement("a");
    copy.href = link.href;
    copy.rel = "noopener";
    const elsewhere = new URL(link.href).origin !== self.location.origin;
    if (elsewhere || event.ctrlKey || event.metaKey || event.shiftKey) copy.target = "_blank";
    parent.document.body.append(copy);
    copy.click();
    copy.remove();
  });
}

function isInside(href: string, here: string): boolean {
  return href.split("#")[0] === here.split("#")[0];
}
