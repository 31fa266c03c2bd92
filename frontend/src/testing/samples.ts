/** Answers of a server, to vary in tests. */
import type { Overview, Table } from "../api/client";

export const NOW_MS = 1_795_000_000_000;

export function overviewOf(changes: Partial<Overview> = {}): Overview {
  return {
    reading: {
      now_ms: NOW_MS,
      read_ms: NOW_MS,
      lags_unread: 0,
      tables_read: 1,
      is_complete: true,
    },
    cluster: "grpc://127.0.0.1:9123",
    version: "0.1.0",
    is_fluss: false,
    may_act: true,
    may_tier_now: true,
    tier_now: "request",
    total: 1,
    by_health: {},
    ...changes,
  } as Overview;
}

export function tableOf(changes: Partial<Table> = {}): Table {
  return {
    path: "shop.orders",
    database: "shop",
    table: "orders",
    table_id: 3,
    health: "ok",
    status: "Scheduled",
    tiering_epoch: 4,
    failures: 0,
    paused: false,
    status_read_ms: NOW_MS,
    rounds_shown: [],
    ...changes,
  } as Table;
}
