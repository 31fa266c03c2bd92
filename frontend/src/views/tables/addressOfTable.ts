import type { Table } from "../../api/client";

/** The path of a table's own view. */
export function addressOfTable(table: Pick<Table, "database" | "table">): string {
  return `/tables/${encodeURIComponent(table.database)}/${encodeURIComponent(table.table)}`;
}
