import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Table } from "../api/client";
import { NOW_MS, tableOf } from "../testing/samples";
import {
  besidesOf,
  BOUNDS,
  compactionRequested,
  isStuck,
  isLateButRunning,
  isTakingLong,
  isUnclaimed,
  meaningOf,
  nextAttempt,
  notTiered,
  reasonOf,
  requested,
  roundsInShort,
  roundsInWords,
  storyOf,
} from "./words";

test("a stuck table tells how often, how much and since when", () => {
  const table = tableOf({
    health: "failing",
    failures: 9,
    lag_rows: 12_480,
    lag_ms: 2 * 3_600_000,
    last_tiered_ms: NOW_MS - 3 * 3_600_000,
    last_error_ms: NOW_MS - 240_000,
  });
  expect(storyOf(table, NOW_MS)).toEqual([
    "9 failures in a row",
    "12,480 rows missing in the lake",
    "oldest row 2 h old",
    "last tiered 3 h ago",
    "last failed 4 min ago",
  ]);
  expect(storyOf(tableOf(), NOW_MS)).toEqual(["not tiered yet"]);
  expect(storyOf(tableOf({ lake_snapshot_id: "7" }), NOW_MS)).toEqual(["last tiered: unknown"]);
});

test("the next attempt is a time, now, paused or running", () => {
  const at = (ms: number) => tableOf({ next_attempt_ms: NOW_MS + ms });
  expect(nextAttempt(at(120_000), NOW_MS)).toBe("in 2 min");
  expect(nextAttempt(at(-5), NOW_MS)).toBe("now");
  expect(nextAttempt(at(-257 * 60_000), NOW_MS)).toBe("due for 4 h 17 min");
  expect(nextAttempt(tableOf({ paused: true }), NOW_MS)).toBe("paused");
  const running = tableOf({ status: "Tiering" });
  expect(nextAttempt(running, NOW_MS)).toBe("running");
  expect(nextAttempt({ ...running, claimed_ms: NOW_MS - 90_000 }, NOW_MS)).toBe(
    "running for 1 min",
  );
  expect(nextAttempt(tableOf(), NOW_MS)).toBe("–");
});

test("a request of somebody else is told, with its time", () => {
  const asked = tableOf({ status: "Pending", requested_ms: NOW_MS - 240_000 });
  expect(requested(asked, NOW_MS)).toBe("round requested 4 min ago");
  const broken = { ...asked, health: "failing", last_error: "no space" } as const;
  expect(requested({ ...broken, failures: 0 }, NOW_MS)).toBe("retry requested 4 min ago");
  expect(storyOf({ ...broken, failures: 0 }, NOW_MS)[0]).toBe("retry requested 4 min ago");
  expect(requested({ ...broken, failures: 2 }, NOW_MS)).toBe("round requested 4 min ago");
  expect(requested(tableOf(), NOW_MS)).toBeNull();
  expect(storyOf({ ...asked, health: "late" }, NOW_MS)).toContain("round requested 4 min ago");
  const compaction = tableOf({ compaction_requested_ms: NOW_MS - 7_200_000 });
  expect(compactionRequested(compaction, NOW_MS)).toBe("compaction requested 2 h ago");
  expect(compactionRequested(tableOf(), NOW_MS)).toBeNull();
});

test("states are explained by the server's own bounds", () => {
  const server = readFileSync("../sluice/page/cluster/health.py", "utf8");
  for (const [name, ms] of Object.entries(BOUNDS)) {
    const found = new RegExp(`^${name} = ([\\d_]+)$`, "m").exec(server);
    expect(Number(found?.[1]?.replaceAll("_", ""))).toBe(ms);
  }
  expect(meaningOf("late")).toBe(
    "Late: the lake lacks rows older than 30 min, or may lack them, or its round has run for so long, or none has succeeded for 1 d",
  );
  expect(meaningOf("waiting")).toBe("Waiting: due for over 1 h, and no worker has claimed it");
});

test("a reason is what was written down, else what the server concludes", () => {
  expect(reasonOf(tableOf({ health: "failing", last_error: "no space" }))).toBe("no space");
  const stopped = tableOf({ health: "late", stopped: "anna stopped it", why: "anna stopped it" });
  expect(reasonOf(stopped)).toBe("The last round was stopped: anna stopped it");
  const why = "it is due, and no worker has claimed it";
  expect(reasonOf(tableOf({ health: "waiting", why }))).toBe(
    "It is due, and no worker has claimed it.",
  );
  expect(reasonOf(tableOf())).toBeNull();
});

test("that nobody claims a table is not said twice", () => {
  const why = "it is due, and no worker has claimed it";
  const waiting = tableOf({ health: "waiting", status: "Pending", why });
  expect(isUnclaimed(waiting)).toBe(true);
  expect(isUnclaimed(tableOf())).toBe(false);
  expect(besidesOf(waiting)).toBeNull();
  expect(besidesOf({ ...waiting, why: `${why}: the DAG tier is paused` })).toBeNull();
  const late = { ...waiting, health: "late" as const };
  expect(besidesOf({ ...late, why: `no round has succeeded for a day: ${why}` })).toBe(
    "No round has succeeded for a day.",
  );
  expect(besidesOf({ ...late, why: "its round by anna has not ended" })).toContain("by anna");
});

test("that a round of a late table goes on is not said twice", () => {
  const why = "its round by a run of the Airflow prod has not ended";
  const late = tableOf({ health: "late", status: "Tiering", why });
  expect([isLateButRunning(late), besidesOf(late)]).toEqual([true, null]);
  expect(isLateButRunning(tableOf({ health: "tiering", status: "Tiering" }))).toBe(false);
  const since = (ms: number) => isTakingLong({ ...late, claimed_ms: NOW_MS - ms });
  expect([since(BOUNDS.LATE_MS), since(BOUNDS.LATE_MS + 1)]).toEqual([false, true]);
  expect(besidesOf({ ...late, why: `its lag is not known: ${why}` })).toBe("Its lag is not known.");
});

test("a table that no round has tiered is new, says so, and since when it is due", () => {
  const why = "no round has tiered it yet: it is due, and no worker has claimed it";
  const fresh = tableOf({
    health: "new",
    status: "Pending",
    why,
    next_attempt_ms: NOW_MS - 12 * 60_000,
  });
  expect(meaningOf("new")).toBe("New: no round has tiered it yet");
  expect(reasonOf(fresh)).toBe(
    "No round has tiered it yet: it is due, and no worker has claimed it.",
  );
  expect(nextAttempt(fresh, NOW_MS)).toBe("due for 12 min");
  expect(notTiered(fresh)).toBe("not yet");
  expect(notTiered({ ...fresh, lake_snapshot_id: "7" })).toBe("unknown");
  expect(isStuck(fresh)).toBe(false);
  expect(isUnclaimed(fresh)).toBe(true);
  expect(besidesOf(fresh)).toBe("No round has tiered it yet.");
});

test("failing, late and waiting tables are stuck, and those whose state cannot be read", () => {
  const stuck = (health: "late" | "paused" | "unknown", failures: number | null = 0) =>
    isStuck(tableOf({ health, failures }));
  expect(stuck("late")).toBe(true);
  expect(stuck("paused")).toBe(false);
  expect(stuck("unknown")).toBe(false);
  expect(stuck("unknown", null)).toBe(true);
});

test("the last rounds are said in a few words", () => {
  const failed = { outcome: "failed" };
  const committed = { outcome: "committed", rows_written: 3 };
  const short = (rounds_shown: NonNullable<Table["rounds_shown"]>, more: Partial<Table> = {}) =>
    roundsInShort(tableOf({ rounds_shown, ...more }));
  expect(short([failed])).toBe("last round failed");
  expect(short([failed, failed])).toBe("last 2 rounds: all failed");
  expect(short([committed, failed])).toBe("last 2 rounds: 1 failed");
  expect(short([committed])).toBe("last round: none failed");
  expect(short([committed, committed], { stopped: "anna stopped it" })).toBe(
    "last 2 rounds: none failed; then one was stopped",
  );
  expect(short([committed, committed], { status: "Tiering" })).toBe(
    "last 2 rounds: none failed; one is running",
  );
});

test("a sparkline has words", () => {
  expect(roundsInWords([])).toBe("no round is recorded");
  expect(
    roundsInWords([
      { outcome: "committed", rows_written: 40 },
      { outcome: "nothing_new", rows_written: 0 },
      { outcome: "failed" },
    ]),
  ).toBe("the last 3 rounds: 1 failed, 1 without new rows, 40 rows tiered");
});
