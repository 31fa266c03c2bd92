/** What the views read, again and again. */
import { keepPreviousData, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { setServerTime } from "../clock";
import { queryOf, type Filters } from "../views/tables/filters";
import { api, dataOf, type Schemas, type Table } from "./client";

export const REFRESH_MS = 5_000;
/** Until the rounds of the rows in sight are read, too. */
const SOON_MS = 1_000;
export const PAGE_ROWS = 50;

export function useOverview() {
  const query = useQuery({
    queryKey: ["overview"],
    queryFn: () => dataOf(api.GET("/api/v1/overview")),
    refetchInterval: soonIfUnread,
  });
  const { data, dataUpdatedAt } = query;
  useEffect(() => {
    if (data) setServerTime(data.reading.now_ms, dataUpdatedAt);
  }, [data, dataUpdatedAt]);
  return query;
}

/** Rounds that are being read are in the next answer. */
function soonIfUnread(query: { state: { data: { are_rounds_read?: boolean } | undefined } }) {
  return query.state.data?.are_rounds_read === false ? SOON_MS : REFRESH_MS;
}

function pageQuery(filters: Filters, page: number) {
  return {
    queryKey: ["tables", filters, page],
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      dataOf(
        api.GET("/api/v1/tables", {
          params: { query: queryOf(filters, page * PAGE_ROWS, PAGE_ROWS) },
          signal, // what was typed since makes this answer useless
        }),
      ),
    refetchInterval: soonIfUnread,
  };
}

export interface TablePages {
  /** Null until the first answer. */
  head: Schemas["Tables"] | null;
  /** The table at an index of the matching ones; undefined while its page is loading. */
  at: (index: number) => Table | undefined;
  error: Error | null;
  /** Whether the rows are those of the filters before. */
  isPrevious: boolean;
}

/**
 * A table that moved from page to page between their answers is on both, and another one is on
 * none: reads them all again.
 */
function useTogether(hasTwice: boolean): void {
  const queries = useQueryClient();
  useEffect(() => {
    if (!hasTwice) return;
    const again = () => void queries.invalidateQueries({ queryKey: ["tables"] });
    again();
    const timer = setInterval(again, SOON_MS);
    return () => clearInterval(timer);
  }, [queries, hasTwice]);
}

/** The matching tables: the first page, and those that `pages` names. */
export function useTablePages(filters: Filters, pages: number[]): TablePages {
  const head = useQuery({ ...pageQuery(filters, 0), placeholderData: keepPreviousData });
  const others = head.isPlaceholderData ? [] : pages.filter((page) => page > 0);
  const rest = useQueries({ queries: others.map((page) => pageQuery(filters, page)) });
  const tables = new Map<number, (Table | undefined)[]>();
  const known = new Set<string>();
  let hasTwice = false;
  const add = (page: number, found: Table[] | undefined) => {
    const once = found?.map((table) => (known.has(table.path) ? undefined : table));
    if (once) tables.set(page, once);
    hasTwice ||= once?.includes(undefined) ?? false;
    found?.forEach((table) => known.add(table.path));
  };
  add(0, head.data?.tables);
  others.forEach((page, i) => add(page, rest[i]?.data?.tables));
  useTogether(hasTwice);
  return {
    head: head.data ?? null,
    at: (index) => tables.get(Math.floor(index / PAGE_ROWS))?.[index % PAGE_ROWS],
    error: head.error ?? rest.find((each) => each.error)?.error ?? null,
    isPrevious: head.isPlaceholderData,
  };
}
