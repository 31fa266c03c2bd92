import { expect, test } from "vitest";
import { ago, bytes, counted, duration, span } from "./format";

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
