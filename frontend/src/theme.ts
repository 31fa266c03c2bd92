/** Light or dark: as the user chose, else as the page around this one, else as the system. */
import { useCallback, useEffect, useState } from "react";
import { parentDarkness, parentScheme, sameOriginParent, watchScheme } from "./frame";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "sluice.theme";

export function storedTheme(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return THEMES.find((theme) => theme === found) ?? "system";
  } catch {
    return "system"; // storage is switched off
  }
}

function store(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // the choice lasts until the page is closed
  }
}

/** Puts it on <html>, where the style sheet finds it. */
export function applyTheme(theme: Theme, parent = sameOriginParent()): void {
  const scheme = theme === "system" ? parentScheme(parent) : theme;
  const root = document.documentElement;
  if (scheme) root.dataset.theme = scheme;
  else delete root.dataset.theme;
  const ground = theme === "system" && scheme === "dark" ? parentDarkness(parent) : null;
  if (ground) root.style.setProperty("--ground", ground);
  else root.style.removeProperty("--ground");
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(storedTheme);
  useEffect(() => {
    applyTheme(theme);
    return watchScheme(sameOriginParent(), () => applyTheme(theme));
  }, [theme]);
  const choose = useCallback((chosen: Theme) => {
    store(chosen);
    setTheme(chosen);
  }, []);
  return [theme, choose];
}
