import { expect, test } from "vitest";
import { bestMode, moved, nearest, xAxis } from "./xAxis";
import { compact, yAxis } from "./yAxis";

const NOW_MS = Date.UTC(2026, 10, 27, 22, 0);
const MINUTE_MS = 60_000;

/** Rounds that ended so many minutes before now. */
function ended(...minutesAgo: number[]) {
  return minutesAgo.map((ago, i) => ({ endedMs: NOW_MS - ago * MINUTE_MS, roundNumber: i + 7 }));
}

test("by time, a pause between rounds and since the last one is a gap", () => {
  const { xs, bar, ticks, says } = xAxis(ended(60, 59, 58, 20), "time", NOW_MS, 620);
  expect(xs[1]! - xs[0]!).toBeCloseTo(10, 0); // a minute
  expect(xs[3]! - xs[2]!).toBeCloseTo(380, 0);
  expect(620 - xs[3]!).toBeGreaterThan(200); // nothing for the last 20 minutes
  expect(bar).toBeLessThan(xs[1]! - xs[0]!); // bars do not touch
  expect(ticks.length).toBeGreaterThan(2);
  expect(says).toContain("time");
});

test("by round, each has the same room and its number", () => {
  const { xs, ticks } = xAxis(ended(60, 59, 58, 20), "round", NOW_MS, 400);
  expect(xs).toEqual([50, 150, 250, 350]);
  expect(ticks.map((tick) => tick.label)).toEqual(["7", "8", "9", "10"]);
});

test("the axis that tells more is chosen", () => {
  const steady = ended(...Array.from({ length: 30 }, (_, i) => 30 - i));
  expect(bestMode(steady, NOW_MS, 600)).toBe("time");
  const cluster = ended(...Array.from({ length: 30 }, (_, i) => 10_000 - i));
  expect(bestMode(cluster, NOW_MS, 600)).toBe("round");
});

test("the labels of 100 rounds do not run into each other, also on a phone", () => {
  const many = ended(...Array.from({ length: 100 }, (_, i) => 100 - i));
  for (const mode of ["time", "round"] as const) {
    const { ticks } = xAxis(many, mode, NOW_MS, 260);
    for (let i = 1; i < ticks.length; i++) {
      expect(ticks[i]!.x - ticks[i - 1]!.x).toBeGreaterThan(ticks[i]!.label.length * 6);
    }
    expect(ticks.length).toBeGreaterThan(1);
  }
});

test("the cursor finds the nearest round, and keys stay within the rounds", () => {
  expect(nearest([10, 20, 60], 39)).toBe(1);
  expect(nearest([10, 20, 60], 41)).toBe(2);
  expect(nearest([], 5)).toBe(-1);
  expect(moved(1, 3, "ArrowRight")).toBe(2);
  expect(moved(2, 3, "ArrowRight")).toBe(2);
  expect(moved(2, 30, "PageDown")).toBe(0);
  expect(moved(2, 30, "End")).toBe(29);
  expect(moved(2, 30, "a")).toBeNull();
});

test("a y axis begins at zero, ends above the largest value, and has whole numbers", () => {
  const y = yAxis(3_301, "count", 100, compact);
  expect(y.at(0)).toBe(100);
  expect(y.at(3_301)).toBeGreaterThan(0);
  expect(y.ticks[0]!.label).toBe("0");
  const small = yAxis(1, "count", 100, compact);
  expect(small.ticks.map((tick) => tick.label)).toEqual(["0", "1"]);
});

test("times have ticks that people read", () => {
  const labels = (ms: number) => yAxis(ms, "ms", 100, String).ticks.map((tick) => tick.label);
  expect(labels(85_000)).toEqual(["0", "30000", "60000", "90000"]);
  expect(labels(3_800)).toEqual(["0", "2000", "4000"]);
});
