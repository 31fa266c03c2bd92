/** The values of the round under the cursor. */
import type { Round } from "../api/client";
import { ago, bytes, count, counted, duration, moment } from "../format";
import { causeOf } from "../parts/cause";
import { phaseClass } from "./PhaseBars";
import { nameOf, numberOf, outcomeOf, phasesOf } from "./rounds";

export function Readout({ round, nowMs }: { round: Round; nowMs: number }) {
  const ended = round.ended_ms ?? nowMs;
  return (
    <div className="readout" data-testid="readout">
      <p className="readout-head">
        <strong>{nameOf(round)}</strong>{" "}
        <span className={`outcome ${round.outcome ?? ""}`}>{outcomeOf(round)}</span>{" "}
        <span className="quiet">
          ended {ago(ended, nowMs)}, {moment(ended)}
        </span>
      </p>
      <dl>
        <Value name="rows" text={numberText(round, "rows_written")} />
        <Value name="keys deleted" text={round.keys_deleted ? count(round.keys_deleted) : null} />
        <Value name="files" text={numberText(round, "files_written")} />
        <Value name="written" text={numberText(round, "bytes_written", bytes)} />
        <Value name="lag" text={lagOf(round)} />
        <Value name="lake" text={lakeOf(round)} />
        <Value name="took" text={numberText(round, "duration_ms", duration)} />
      </dl>
      {round.reason ? (
        <p className="readout-reason">{causeOf(round.reason) ?? round.reason}</p>
      ) : (
        <ul className="legend">
          {phasesOf(round).map(({ name, ms }) => (
            <li key={name}>
              <span className={`swatch ${phaseClass(name)}`} />
              {name} {duration(ms)}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Value({ name, text }: { name: string; text: string | null }) {
  if (text === null) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </div>
  );
}

export function numberText(round: Round, field: string, words = count): string | null {
  const n = numberOf(round, field);
  return n === null ? null : words(n);
}

/** `5,120 → 0`, in rows. */
export function lagOf(round: Round): string | null {
  const before = numberOf(round, "lag_rows_before");
  const after = numberOf(round, "lag_rows_after");
  if (before === null && after === null) return null;
  return `${before === null ? "?" : count(before)} → ${after === null ? "?" : count(after)}`;
}

function lakeOf(round: Round): string | null {
  const size = numberOf(round, "lake_bytes");
  const files = numberOf(round, "lake_files");
  if (size === null) return null;
  return files === null ? bytes(size) : `${bytes(size)}, ${counted(files, "file")}`;
}
