/** Which tables are shown, and in which order: kept in the address of the page. */
import { useCallback, useMemo } from "react";
import type { Health, paths } from "../../api/client";
import { navigate, pathOf, useHashSearch } from "../../location";
import { SEARCH_MAX } from "../../parts/SearchBox";

type Query = NonNullable<paths["/api/v1/tables"]["get"]["parameters"]["query"]>;
export type SortKey = NonNullable<Query["sort"]>;

export interface Filters {
  search: string;
  health: Health[];
  database: string | null;
  sort: SortKey;
  descending: boolean;
}

/** The worst first, as the server orders them. */
export const HEALTHS: Health[] = [
  "failing",
  "late",
  "waiting",
  "unknown",
  "new",
  "paused",
  "tiering",
  "ok",
];

/** In which direction a column is first sorted: what needs a look comes first. */
const FIRST_DESCENDING: Record<SortKey, boolean> = {
  attention: false,
  table: false,
  health: false,
  lag_rows: true,
  lag: true,
  last_tiered: false,
  failures: true,
  next_attempt: false,
  lake_bytes: true,
  lake_rows: true,
};

/** By name: what needs attention stands above the list already. */
const DEFAULT_SORT: SortKey = "table";

export const NO_FILTERS: Filters = {
  search: "",
  health: [],
  database: null,
  sort: DEFAULT_SORT,
  descending: false,
};

/** @param search of the page's address; whatever it holds that is not known is left out */
export function filtersOf(search: string): Filters {
  const given = new URLSearchParams(search);
  const sort = given.get("sort") ?? DEFAULT_SORT;
  const known = sort in FIRST_DESCENDING ? (sort as SortKey) : DEFAULT_SORT;
  const order = given.get("order");
  return {
    search: (given.get("search") ?? "").slice(0, SEARCH_MAX),
    health: HEALTHS.filter((health) => given.getAll("health").includes(health)),
    database: given.get("database") || null,
    sort: known,
    descending: order ? order === "desc" : FIRST_DESCENDING[known],
  };
}

/** The search of the page's address; empty without filters. */
export function addressOf(filters: Filters): string {
  const found = new URLSearchParams();
  if (filters.search) found.set("search", filters.search);
  for (const health of filters.health) found.append("health", health);
  if (filters.database) found.set("database", filters.database);
  if (filters.sort !== DEFAULT_SORT) found.set("sort", filters.sort);
  if (filters.descending !== FIRST_DESCENDING[filters.sort])
    found.set("order", filters.descending ? "desc" : "asc");
  return found.toString();
}

/** The query of the API. */
export function queryOf(filters: Filters, offset: number, limit: number): Query {
  return {
    ...(filters.search ? { search: filters.search } : {}),
    ...(filters.health.length > 0 ? { health: filters.health } : {}),
    ...(filters.database ? { database: filters.database } : {}),
    sort: filters.sort,
    descending: filters.descending,
    offset,
    limit,
  };
}

/** In the order of a column, in the direction that it is first sorted in. */
export function orderedBy(filters: Filters, sort: SortKey): Filters {
  return { ...filters, sort, descending: FIRST_DESCENDING[sort] };
}

/** The next order on a click of a column's header: first, reversed, and back to the order by name. */
export function sortedBy(filters: Filters, sort: SortKey): Filters {
  const first = FIRST_DESCENDING[sort];
  if (filters.sort !== sort) return orderedBy(filters, sort);
  if (filters.descending === first) return { ...filters, descending: !first };
  return { ...filters, sort: DEFAULT_SORT, descending: false };
}

export function withHealth(filters: Filters, health: Health): Filters {
  const has = filters.health.includes(health);
  const kept = has ? filters.health.filter((one) => one !== health) : [...filters.health, health];
  return { ...filters, health: HEALTHS.filter((one) => kept.includes(one)) };
}

export function isFiltered(filters: Filters): boolean {
  return filters.search !== "" || filters.health.length > 0 || filters.database !== null;
}

/** The filters in the address, and how to change them. */
export function useFilters(): [
  Filters,
  (filters: Filters, options?: { replace?: boolean }) => void,
] {
  const search = useHashSearch();
  const filters = useMemo(() => filtersOf(search), [search]);
  const change = useCallback((next: Filters, options?: { replace?: boolean }) => {
    const address = addressOf(next);
    navigate(pathOf(location.hash) + (address ? `?${address}` : ""), options);
  }, []);
  return [filters, change];
}
