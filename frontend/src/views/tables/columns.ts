/** The columns of the list, and by what each is sorted. */
import type { SortKey } from "./filters";

export interface Column {
  id: string;
  heading: string;
  sort?: SortKey;
  isNumber?: boolean;
  /** Below the heading: how to read the column. */
  hint?: string;
}

export const COLUMNS: Column[] = [
  { id: "table", heading: "Table", sort: "table" },
  { id: "state", heading: "State", sort: "health" },
  { id: "lag-rows", heading: "Lag", sort: "lag_rows", isNumber: true },
  { id: "lag-age", heading: "Oldest row", sort: "lag", isNumber: true },
  { id: "rounds", heading: "Last rounds", hint: "rows per round, × failed" },
  { id: "tiered", heading: "Last tiered", sort: "last_tiered", isNumber: true },
  { id: "failures", heading: "Failures", sort: "failures", isNumber: true },
  { id: "next", heading: "Next attempt", sort: "next_attempt", isNumber: true },
  { id: "size", heading: "Lake size", sort: "lake_bytes", isNumber: true },
  { id: "actions", heading: "Actions" },
];
