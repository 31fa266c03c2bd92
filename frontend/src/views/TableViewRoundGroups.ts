/** Rounds that failed one after the other for the same reason, as one row. Pure. */
import type { Round } from "../api/client";
import { isFailed } from "../charts/rounds";

export interface RoundRow {
  /** Of a group: its newest round. */
  round: Round;
  /** The rounds of a group, the newest first; null: a row of one round. */
  group: Round[] | null;
  /** Whether the row above it has its reason. */
  isMember: boolean;
}

/** @param rounds the newest first */
export function groupsOf(rounds: Round[]): Round[][] {
  const groups: Round[][] = [];
  for (const round of rounds) {
    const last = groups.at(-1);
    if (last && isSame(last[0]!, round)) last.push(round);
    else groups.push([round]);
  }
  return groups;
}

function isSame(one: Round, other: Round): boolean {
  return isFailed(one) && isFailed(other) && Boolean(one.reason) && one.reason === other.reason;
}

/** The oldest round names a group: newer ones join it. */
export function groupKey(group: Round[]): string {
  const oldest = group.at(-1)!;
  return `${oldest.round_number ?? "?"}@${oldest.ended_ms ?? 0}`;
}

/** @param open the keys of groups whose rounds are shown one by one */
export function rowsOf(rounds: Round[], open: ReadonlySet<string>): RoundRow[] {
  return groupsOf(rounds).flatMap((group) => {
    const alone = (round: Round, isMember: boolean) => ({ round, group: null, isMember });
    if (group.length === 1) return [alone(group[0]!, false)];
    const members = open.has(groupKey(group)) ? group.map((each) => alone(each, true)) : [];
    return [{ round: group[0]!, group, isMember: false }, ...members];
  });
}

/** `8 to 15` */
export function numbersOf(group: Round[]): string {
  const [first, last] = [group.at(-1)!.round_number, group[0]!.round_number];
  return first == null || last == null ? "?" : `${first} to ${last}`;
}
