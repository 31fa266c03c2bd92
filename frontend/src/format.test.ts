import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  ago,
  bytes,
  clockTime,
  counted,
  duration,
  lastOf,
  moment,
  plural,
  span,
  timeZone,
} from "./format";

test("one thing has another word than several", () => {
  expect([1, 3].map((n) => lastOf(n, "round"))).toEqual(["last round", "last 3 rounds"]);
  expect([1, 2].map((n) => plural(n, "is", "are"))).toEqual(["is", "are"]);
});

test("no other file knows which word it is", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter(
    (name) => /\.tsx?$/.test(name) && !/format\.ts$|\.test\./.test(name),
  );
  expect(files.length).toBeGreaterThan(40);
  const chosen = /(?<!% \d+) === 1\s+\?\s*["`]|count\([^()]*\)\}\s+[a-z]+s\b/;
  expect(files.filter((name) => chosen.test(readFileSync(`src/${name}`, "utf8")))).toEqual([]);
});

test("durations have the largest units", () => {
  expect(span(57_000)).toBe("57 s");
  expect(span(185_000, 2)).toBe("3 min 5 s");
  expect(span(3_600_000 * 49)).toBe("2 d");
  expect(ago(1_000, 8_000)).toBe("7 s ago");
  expect(duration(35)).toBe("35 ms");
  expect(duration(2_710)).toBe("2.7 s");
});

test("sizes are decimal, as in sluice history", () => {
  expect(bytes(1_100)).toBe("1.1 kB");
  expect(bytes(46_000_000)).toBe("46 MB");
  expect(bytes(999)).toBe("999 B");
});

test("nouns agree with their number", () => {
  expect(counted(1, "row")).toBe("1 row");
  expect(counted(12_480, "row")).toBe("12,480 rows");
});

test("an age has two units from an hour on", () => {
  expect(ago(0, 59 * 60_000)).toBe("59 min ago");
  expect(ago(0, 160 * 60_000)).toBe("2 h 40 min ago");
  expect(ago(0, 51 * 3_600_000)).toBe("2 d 3 h ago");
});

test("clocks have 24 hours, and the day only if it is long ago", () => {
  const evening = new Date(2026, 10, 27, 21, 10, 5).getTime();
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" })
    .formatToParts(evening)
    .find(({ type }) => type === "timeZoneName")?.value;
  const long = clockTime(evening, evening + 13 * 3_600_000);
  expect(clockTime(evening, evening + 3_600_000)).toBe(`21:10 ${zone}`);
  expect(long).toMatch(/27.*2026.*21:10/);
  expect(long.endsWith(`21:10 ${zone}`)).toBe(true);
  expect(moment(evening)).toMatch(/21:10:05/);
  expect(moment(evening)).not.toMatch(/PM/);
  expect(moment(new Date(2026, 10, 27, 0, 5).getTime())).toMatch(/00:05:00/);
  expect(timeZone()).not.toBe("");
});
