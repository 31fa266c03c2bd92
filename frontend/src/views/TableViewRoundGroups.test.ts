import { expect, test } from "vitest";
import type { Round } from "../api/client";
import { groupKey, groupsOf, numbersOf, rowsOf } from "./TableViewRoundGroups";

const round = (round_number: number, outcome: string, reason: string | null = null) =>
  ({ round_number, ended_ms: round_number * 1000, outcome, reason }) as Round;

const ROUNDS = [
  round(9, "failed", "no space"),
  round(8, "failed", "no space"),
  round(7, "failed", "access denied"),
  round(6, "committed"),
  round(5, "committed"),
  round(4, "failed"),
  round(3, "failed"),
];

test("only failures in a row with the same reason are one group", () => {
  expect(groupsOf(ROUNDS).map((group) => group.map((each) => each.round_number))).toEqual([
    [9, 8],
    [7],
    [6],
    [5],
    [4],
    [3],
  ]);
});

test("a group stays open while newer rounds join it", () => {
  const key = groupKey([ROUNDS[0]!, ROUNDS[1]!]);
  const joined = [round(10, "failed", "no space"), ...ROUNDS];
  const [group] = groupsOf(joined);
  expect(groupKey(group!)).toBe(key);
  expect(numbersOf(group!)).toBe("8 to 10");
  expect(rowsOf(joined, new Set()).length).toBe(6);
  const shown = rowsOf(joined, new Set([key]));
  expect(shown.filter((each) => each.isMember).map((each) => each.round.round_number)).toEqual([
    10, 9, 8,
  ]);
});
