/** What the page says of a table, in the words of docs/status.md. */
import type { Health, Table } from "../api/client";
import { ago, count, counted, lastOf, plural, span, spanSince } from "../format";

export const HEALTH_WORDS: Record<Health, string> = {
  failing: "Failing",
  late: "Late",
  waiting: "Waiting",
  unknown: "Unknown",
  new: "New",
  paused: "Paused",
  tiering: "Tiering",
  ok: "OK",
};

/** The bounds of sluice/page/cluster/health.py, as it names them. */
export const BOUNDS = { LATE_MS: 1_800_000, WAITING_MS: 3_600_000, DAY_MS: 86_400_000 };

/** What each state means: after its name and a colon. */
export const HEALTH_MEANS: Record<Health, string> = {
  failing: "the last round failed or could not start, or no leader has its buckets",
  late:
    `the lake lacks rows older than ${span(BOUNDS.LATE_MS)}, or may lack them,` +
    ` or its round has run for so long, or none has succeeded for ${span(BOUNDS.DAY_MS)}`,
  waiting: `due for over ${span(BOUNDS.WAITING_MS)}, and no worker has claimed it`,
  unknown: "its state cannot be read, or no round of Sluice is recorded",
  new: "no round has tiered it yet",
  paused: "a user paused it, and no round starts",
  tiering: "a round is running",
  ok: "none of the other states",
};

/** `Late: the lake lacks …` */
export function meaningOf(health: Health): string {
  return `${HEALTH_WORDS[health]}: ${HEALTH_MEANS[health]}`;
}

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
  else if (table.requested_ms != null) story.push(requested(table, nowMs)!);
  else if (table.health === "failing") story.push("a retry was requested");
  if (table.lag_rows) story.push(`${counted(table.lag_rows, "row")} missing in the lake`);
  if (table.lag_rows && table.lag_ms) story.push(`oldest row ${spanSince(0, table.lag_ms)} old`);
  story.push(lastTiered(table, nowMs));
  if (table.last_error_ms) story.push(`last failed ${ago(table.last_error_ms, nowMs)}`);
  return story;
}

function lastTiered(table: Table, nowMs: number): string {
  if (table.last_tiered_ms) return `last tiered ${ago(table.last_tiered_ms, nowMs)}`;
  return table.lake_snapshot_id ? "last tiered: unknown" : "not tiered yet";
}

/** In place of the time of the last success: the lake may have the table from somebody else. */
export function notTiered(table: Table): string {
  return table.lake_snapshot_id ? "unknown" : "not yet";
}

/** Workers look for due tables now and then: only what is due for longer says since when. */
const DUE_NOW_MS = 60_000;

/** When the next round may start: `in 2 min`, `now`, `due for 4 h 17 min`, `paused`. */
export function nextAttempt(table: Table, nowMs: number): string {
  if (table.paused) return "paused";
  if (table.status === "Tiering")
    return table.claimed_ms ? `running for ${spanSince(table.claimed_ms, nowMs)}` : "running";
  if (!table.next_attempt_ms) return "–";
  const left = table.next_attempt_ms - nowMs;
  if (left > 500) return `in ${span(left)}`;
  return left > -DUE_NOW_MS ? "now" : `due for ${spanSince(table.next_attempt_ms, nowMs)}`;
}

/** That somebody asked for the next round: what, and when. */
export function requested(table: Table, nowMs: number): string | null {
  if (table.requested_ms == null) return null;
  const what = table.last_error && table.failures === 0 ? "retry" : "round";
  return `${what} requested ${ago(table.requested_ms, nowMs)}`;
}

/** That the next round has to compact the table. */
export function compactionRequested(table: Table, nowMs: number): string | null {
  const at = table.compaction_requested_ms;
  return at == null ? null : `compaction requested ${ago(at, nowMs)}`;
}

/** The text that a worker or the server wrote down about a stuck table; null: there is none. */
export function recordedReason(table: Table): string | null {
  if (table.health === "failing") return table.last_error ?? table.why ?? null;
  if (table.health === "late") return table.stopped ?? null;
  if (table.health === "unknown") return table.note ?? table.why ?? null;
  return null;
}

/** Why a table is stuck: the whole, of which a list shows the first line. */
export function reasonOf(table: Table): string | null {
  const recorded = recordedReason(table);
  if (recorded && table.health === "late") return `The last round was stopped: ${recorded}`;
  return recorded ?? explanationOf(table);
}

/** What the server concludes about a table that nobody wrote a reason for. */
function explanationOf(table: Table): string | null {
  if (!table.why || recordedReason(table) === table.why) return null;
  return `${table.why.charAt(0).toUpperCase()}${table.why.slice(1)}.`;
}

/** Whether it needs a worker that claims it: it is due, and none does. */
export function isUnclaimed(table: Table): boolean {
  return UNCLAIMED.includes(table.health) && table.status === "Pending";
}

const UNCLAIMED: Health[] = ["late", "waiting", "new"];

/** Whether a round of a late table runs: it may be the one that ends this, or that does not end. */
export function isLateButRunning(table: Table): boolean {
  return table.health === "late" && table.status === "Tiering";
}

/** Whether its round, by the last reading, has run for so long that somebody should look. */
export function isTakingLong({ claimed_ms: sinceMs, status_read_ms: readMs }: Table): boolean {
  return sinceMs != null && readMs - sinceMs > BOUNDS.LATE_MS;
}

/** How sluice/page/cluster/health.py says that nobody claims a table, or that its round goes on. */
const NOT_CLAIMED = /(: )?it is due, and no worker has claimed it(: the DAG .* is paused)?$/;
const NOT_ENDED = /(: )?its round by .* has not ended$/s;

/** What the server concludes besides: `Unclaimed` and `Running` say that, with the next step. */
export function besidesOf(table: Table): string | null {
  const said = isUnclaimed(table) ? NOT_CLAIMED : isLateButRunning(table) ? NOT_ENDED : null;
  if (!said) return explanationOf(table);
  return explanationOf({ ...table, why: (table.why ?? "").replace(said, "") });
}

/** What the last rounds did, in a few words. A stopped round is none that ended. */
export function roundsInShort({ rounds_shown: points, stopped, status }: Table): string {
  const more = [
    stopped ? "then one was stopped" : null,
    status === "Tiering" ? "one is running" : null,
  ].filter((each) => each !== null);
  return [endedInShort(points), ...more].join("; ");
}

function endedInShort(points: Table["rounds_shown"]): string {
  const shown = points ?? [];
  const failed = shown.filter((point) => point.outcome === "failed").length;
  const rounds = lastOf(shown.length, "round");
  if (failed === shown.length)
    return plural(shown.length, `${rounds} failed`, `${rounds}: all failed`);
  return `${rounds}: ${failed > 0 ? `${count(failed)} failed` : "none failed"}`;
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
  return `the ${lastOf(points.length, "round")}: ${parts.join(", ")}`;
}
