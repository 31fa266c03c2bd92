import { Window as FrameWindow } from "happy-dom";
import { beforeEach, expect, test } from "vitest";
import {
  openLinksOutside,
  parentDarkness,
  parentScheme,
  sameOriginParent,
  shareHash,
} from "./frame";
import { applyTheme, type Theme } from "./theme";

beforeEach(() => {
  document.body.replaceChildren();
  delete document.documentElement.dataset.theme;
  document.documentElement.className = "";
  history.replaceState(null, "", "#/");
});

/** The window of this page inside a frame; the window of the test is around it. */
function framed(): Window {
  return new FrameWindow({ url: location.href.split("#")[0]! }) as unknown as Window;
}

/** A page of another origin refuses every look at it. */
function foreign(): Window {
  const refuse = () => {
    throw new DOMException("Blocked a frame", "SecurityError");
  };
  return new Proxy({} as Window, { get: refuse, set: refuse });
}

test("a foreign page around this one is left alone", () => {
  const self = { parent: foreign(), location } as unknown as Window;
  expect(sameOriginParent(self)).toBeNull();
  expect(() => shareHash(self)).not.toThrow();
  expect(() => openLinksOutside(self)).not.toThrow();
  expect(parentScheme(null)).toBeNull();
});

test("a page that no other is around has no parent", () => {
  expect(sameOriginParent(window)).toBeNull();
});

function moved(page: Window, hash: string): void {
  page.history.replaceState(null, "", hash);
  page.dispatchEvent(new Event("hashchange"));
}

test("the page starts where the address of the page around it says", () => {
  const page = framed();
  history.replaceState({ key: "airflow" }, "", "#/tables/shop/orders?tab=rounds");
  const stop = shareHash(page, window);
  expect(page.location.hash).toBe("#/tables/shop/orders?tab=rounds");
  stop();
});

test("the page around it follows, and keeps its own state and path", () => {
  const page = framed();
  history.replaceState({ key: "airflow" }, "", location.pathname);
  const { length } = history;
  const stop = shareHash(page, window);
  moved(page, "#/leases");
  expect(location.hash).toBe("#/leases");
  expect(history.state).toEqual({ key: "airflow" });
  expect(history.length).toBe(length);

  stop();
  moved(page, "#/maintenance");
  expect(location.hash).toBe("#/leases");
});

test("the colours follow the page around it, unless the user chose", () => {
  const root = document.documentElement;
  root.classList.add("dark");
  expect(parentScheme(window)).toBe("dark");
  applyTheme("system", window);
  expect(root.dataset.theme).toBe("dark");
  applyTheme("light", window);
  expect(root.dataset.theme).toBe("light");
  root.className = "";
  applyTheme("system", null);
  expect(root.dataset.theme).toBeUndefined();
});

test("the ground is that of a dark page around it, on which texts can be read", () => {
  const root = document.documentElement;
  const ground = (background: string, theme: Theme = "system") => {
    document.body.style.backgroundColor = background;
    root.classList.add("dark");
    applyTheme(theme, window);
    return root.style.getPropertyValue("--ground");
  };
  expect(ground("rgb(23, 30, 45)")).toBe("rgb(23, 30, 45)");
  expect(ground("rgb(23, 30, 45)", "dark")).toBe("");
  expect(ground("rgb(250, 250, 250)")).toBe("");
  expect(ground("rgba(0, 0, 0, 0)")).toBe("");
  root.className = document.body.style.backgroundColor = "";
  applyTheme("system", null);
});

test("the ground is dark also in the notation that Airflow has", () => {
  // the document of these tests does not know it
  const page = (backgroundColor: string) =>
    ({ document, getComputedStyle: () => ({ backgroundColor }) }) as unknown as Window;
  const navy = "oklch(0.23185 0.0323 266.44)";
  expect(parentDarkness(page(navy))).toBe(navy);
  expect(parentDarkness(page("oklch(0.9 0.0323 266.44)"))).toBeNull();
});

test("a link out of the page is opened by the page around it", () => {
  const page = framed();
  const clicked: string[] = [];
  document.body.addEventListener("click", (event) => {
    event.preventDefault();
    clicked.push((event.target as HTMLAnchorElement).href);
  });
  openLinksOutside(page, window);
  const link = page.document.createElement("a");
  link.href = `${location.origin}/dags/tier`;
  page.document.body.append(link);
  link.click();
  expect(clicked).toEqual([`${location.origin}/dags/tier`]);

  link.href = `${page.location.href.split("#")[0]}#/leases`;
  link.click();
  expect(clicked).toHaveLength(1);
});
