/** What a view keeps in the page's address, so that it can be linked to. */
import { useCallback, useMemo } from "react";
import { navigate, pathOf, searchOf, useHashSearch } from "../location";

type Changes = Record<string, string | null>;

/** The parameters behind `?` in the hash, and a function that changes some; null removes one. */
export function useAddress(): [URLSearchParams, (changes: Changes) => void] {
  const search = useHashSearch();
  const params = useMemo(() => new URLSearchParams(search), [search]);
  const change = useCallback((changes: Changes) => {
    const next = new URLSearchParams(searchOf(location.hash));
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") next.delete(name);
      else next.set(name, value);
    }
    const text = next.toString();
    navigate(`${pathOf(location.hash)}${text ? `?${text}` : ""}`, { replace: true });
  }, []);
  return [params, change];
}

/** The address of a table's view, or of one of its sections. */
export function tableAddress(path: string, section?: string): string {
  const at = path.indexOf(".");
  const [database, table] = [path.slice(0, at), path.slice(at + 1)];
  const base = `/tables/${encodeURIComponent(database)}/${encodeURIComponent(table)}`;
  return section ? `${base}?section=${section}` : base;
}
