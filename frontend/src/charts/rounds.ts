/** Rounds as the charts need them: the oldest first, with phases and words. Pure. */
import type { Round } from "../api/client";
import { bytes, counted, duration } from "../format";

interface Phase {
  key: keyof Round & `${string}_ms`;
  name: string;
  /** What the time was spent on. */
  does: string;
}

/** In the order in which a round runs them. */
export const PHASES: Phase[] = [
  { key: "recover_ms", name: "recover", does: "find the base" },
  { key: "plan_ms", name: "plan", does: "plan" },
  { key: "copy_ms", name: "copy", does: "copy rows" },
  { key: "compaction_ms", name: "compaction", does: "compact files" },
  { key: "prepare_ms", name: "prepare", does: "store the offsets" },
  { key: "lake_commit_ms", name: "lake commit", does: "commit to the lake" },
  { key: "fluss_commit_ms", name: "Fluss commit", does: "register the snapshot" },
  { key: "expire_ms", name: "expire", does: "expire snapshots" },
];

/** What is left of the duration: the start, waits and the report. */
export const REST = "other";

interface PhaseTime {
  name: string;
  ms: number;
}

/** The phases of a round that took time, and the rest of its duration. */
export function phasesOf(round: Round): PhaseTime[] {
  const found: PhaseTime[] = [];
  let known = 0;
  for (const { key, name } of PHASES) {
    const ms = numberOf(round, key);
    if (ms === null || ms <= 0) continue;
    found.push({ name, ms });
    known += ms;
  }
  const rest = (round.duration_ms ?? 0) - known;
  if (rest > 0) found.push({ name: REST, ms: rest });
  return found;
}

/** A number that a round recorded; null if it did not, or if this server does not know the field. */
export function numberOf(round: Round, field: string): number | null {
  const value = (round as Record<string, unknown>)[field];
  return typeof value === "number" ? value : null;
}

/** The charts read from the past to now; the API answers the newest first. */
export function oldestFirst(rounds: Round[]): Round[] {
  return rounds.filter((each) => each.ended_ms != null).reverse();
}

export function isFailed(round: Round): boolean {
  return round.outcome === "failed";
}

const OUTCOMES: Record<string, string> = {
  committed: "committed",
  nothing_new: "nothing new",
  already_landed: "already landed",
  failed: "failed",
  finished: "finished",
};

/** The words of `sluice history`. */
export function outcomeOf(round: Round): string {
  const outcome = round.outcome ?? "unknown";
  return OUTCOMES[outcome] ?? outcome.replaceAll("_", " ");
}

export function nameOf(round: Round): string {
  return round.round_number == null ? "Round" : `Round ${round.round_number}`;
}

/** A round as a sentence, for screen readers. */
export function sentenceOf(round: Round, ended: string): string {
  const says = [`${nameOf(round)}, ${outcomeOf(round)}, ended ${ended}`];
  const add = (field: string, words: (n: number) => string) => {
    const n = numberOf(round, field);
    if (n !== null) says.push(words(n));
  };
  add("duration_ms", (n) => `took ${duration(n)}`);
  add("rows_written", (n) => counted(n, "row"));
  add("keys_deleted", (n) => (n > 0 ? `${counted(n, "key")} deleted` : ""));
  add("files_written", (n) => counted(n, "file"));
  add("lag_rows_after", (n) => `lag after it ${counted(n, "row")}`);
  add("lake_bytes", (n) => `lake table ${bytes(n)}`);
  if (round.reason) says.push(round.reason);
  return says.filter(Boolean).join(", ");
}
