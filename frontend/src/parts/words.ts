/** What the page says of a table, in the words of docs/status.md. */
import type { Health, Table } from "../api/client";
import { count, counted, span } from "../format";

export const HEALTH_WORDS: Record<Health, string> = {
  failing: "Failing",
  late: "Late",
  waiting: "Waiting",
  unknown: "Unknown",
  paused: "Paused",
  tiering: "Tiering",
  ok: "OK",
};

export const HEALTH_MEANS: Record<Health, string> = {
  failing: "The last round failed",
  late: "The lake lacks rows that are too old",
  waiting: "Due for long, and no worker has claimed it",
  unknown: "Its state cannot be read, or no round is recorded",
  paused: "A user paused it",
  tiering: "A round is running",
  ok: "None of these",
};

/** What needs a person. */
export function isStuck(table: Table): boolean {
  const { health } = table;
  const isUnread = health === "unknown" && (table.failures ?? null) === null;
  return health === "failing" || health === "late" || health === "waiting" || isUnread;
}

/** Since when, how often: the line below the name of a stuck table. */
export function storyOf(table: Table, nowMs: number): string[] {
  const story: string[] = [];
  const failures = table.failures ?? 0;
  if (failures > 0) story.push(`${counted(failures, "failure")} in a row`);
  if (table.lag_rows) story.push(`${counted(table.lag_rows, "row")} missing in the lake`);
  if (table.lag_rows && table.lag_ms) story.push(`the oldest ${span(table.lag_ms)} old`);
  story.push(lastTiered(table, nowMs));
  return story;
}

export function lastTiered(table: Table, nowMs: number): string {
  if (table.last_tiered_ms) return `last tiered ${span(nowMs - table.last_tiered_ms)} ago`;
  return table.lake_snapshot_id ? "last tiered: unknown" : "never tiered";
}

/** When the next round may start: `in 2 min`, `now`, `paused`. */
export function nextAttempt(table: Table, nowMs: number): string {
  if (table.paused) return "paused";
  if (table.status === "Tiering") return "running";
  if (!table.next_attempt_ms) return "–";
  const left = table.next_attempt_ms - nowMs;
  return left > 500 ? `in ${span(left)}` : "now";
}

/** Since when a table is stuck. A failing one: since the first of its failures in a row. */
export function stuckSinceMs(table: Table): number | null {
  const since = table.stuck_since_ms ?? null;
  if (table.health !== "failing") return since;
  const points = table.rounds_shown ?? [];
  let first = since;
  for (let at = points.length - 1; at >= 0 && points[at]?.outcome === "failed"; at -= 1) {
    first = points[at]?.ended_ms ?? first;
  }
  return since === null || first === null ? (first ?? since) : Math.min(first, since);
}

/** The text that a worker or the server wrote down about a stuck table; null: there is none. */
export function recordedReason(table: Table): string | null {
  if (table.health === "failing") return table.last_error ?? table.why ?? null;
  if (table.health === "late") return table.stopped ?? null;
  if (table.health === "unknown") return table.note ?? table.why ?? null;
  return null;
}

/** Why a table is stuck, also where nobody wrote down a reason: one line of the list. */
export function reasonOf(table: Table): string | null {
  const recorded = recordedReason(table);
  if (table.health === "late" && recorded) return `The last round was stopped: ${recorded}`;
  return recorded ?? guessOf(table) ?? table.why ?? null;
}

/** What follows from the state of a stuck table, in our own words. */
export function guessOf(table: Table): string | null {
  const { health, status } = table;
  if (health !== "late" && health !== "waiting") return null;
  if (status === "Tiering") return "A round is running, and has not caught up yet.";
  if (status === "Pending" || health === "waiting")
    return "It is due, and no worker has claimed it. Does one run that may take this table?";
  return "Its rounds do not keep up with the rows that arrive.";
}

/** What the last rounds did, for the sparkline. */
export function roundsInWords(points: Table["rounds_shown"]): string {
  if (!points || points.length === 0) return "no round is recorded";
  const failed = points.filter((point) => point.outcome === "failed").length;
  const idle = points.filter((point) => point.outcome === "nothing_new").length;
  const rows = points.reduce((sum, point) => sum + (point.rows_written ?? 0), 0);
  const parts = [
    failed > 0 ? `${failed} failed` : "none failed",
    ...(idle > 0 ? [`${idle} without new rows`] : []),
    `${counted(rows, "row")} tiered`,
  ];
  return `the last ${points.length === 1 ? "round" : `${count(points.length)} rounds`}: ${parts.join(", ")}`;
}
