/** The list of rounds, as `sluice history --wide` has it. */
import { useState, type ReactNode } from "react";
import type { Round } from "../api/client";
import { lagOf, numberText } from "../charts/Readout";
import { isFailed, nameOf, numberOf, outcomeOf, phasesOf } from "../charts/rounds";
import { ago, bytes, count, counted, duration, moment } from "../format";
import { CopyButton } from "../parts/Reason";
import { Grid, type Column } from "./TableViewGrid";
import { Links } from "./TableViewHead";
import { groupKey, numbersOf, rowsOf, type RoundRow } from "./TableViewRoundGroups";

export function roundKey(round: Round): string {
  return `${round.round_number ?? "?"}@${round.ended_ms ?? 0}`;
}

interface Props {
  rounds: Round[];
  nowMs: number;
  /** The round under the charts' cursor. */
  picked: string;
}

export function RoundList({ rounds, nowMs, picked }: Props) {
  const hasDeletes = rounds.some((each) => (each.keys_deleted ?? 0) > 0);
  const hasCompactions = rounds.some((each) => each.compacted);
  const hasLinks = rounds.some((each) => (each.links ?? []).length > 0);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (key: string) => {
    const next = new Set(open);
    if (!next.delete(key)) next.add(key);
    setOpen(next);
  };
  const columns = columnsOf(nowMs).filter(
    ({ key }) =>
      (key !== "deletes" || hasDeletes) &&
      (key !== "compaction" || hasCompactions) &&
      (key !== "links" || hasLinks),
  );
  return (
    <Grid
      caption="Rounds, the newest first"
      columns={columns.map((column) => ({
        ...column,
        cell: (row: RoundRow) =>
          row.group ? (
            groupCell(column.key, row.group, nowMs, open, toggle)
          ) : row.isMember && column.key === "outcome" ? (
            <OutcomeWord round={row.round} />
          ) : (
            column.cell(row.round)
          ),
      }))}
      rows={rowsOf(rounds, open)}
      keyOf={(row) => (row.group ? `group ${groupKey(row.group)}` : roundKey(row.round))}
      nameOf={(row) => nameOf(row.round)}
      classOf={(row) => {
        const shown = row.group && !open.has(groupKey(row.group)) ? row.group : [row.round];
        const isPicked = !(row.group && shown.length === 1) && shown.some(isAt(picked));
        const failed = isFailed(row.round) ? "row-failed" : "";
        return `${failed} ${isPicked ? "row-picked" : ""}`.trim() || undefined;
      }}
      more={(row) => (row.group ? null : <RoundDetails round={row.round} />)}
    />
  );
}

function isAt(picked: string): (round: Round) => boolean {
  return (round) => roundKey(round) === picked;
}

function groupCell(
  column: string,
  group: Round[],
  nowMs: number,
  open: ReadonlySet<string>,
  toggle: (key: string) => void,
): ReactNode {
  const key = groupKey(group);
  const isOpen = open.has(key);
  const numbers = numbersOf(group);
  switch (column) {
    case "round":
      return numbers;
    case "ended":
      return <Ended round={group[0]!} nowMs={nowMs} />;
    case "outcome":
      return (
        <>
          <span className="outcome failed wraps">
            failed {counted(group.length, "time")} with the same reason
          </span>
          <span className="outcome-why">{firstLine(group[0]!.reason ?? "")}</span>
          <button
            type="button"
            className="button small"
            aria-expanded={isOpen}
            aria-label={`${isOpen ? "Hide" : "Show"} each of the rounds ${numbers}`}
            onClick={() => toggle(key)}
          >
            {isOpen ? "Hide each" : "Show each"}
          </button>
        </>
      );
    default:
      return null;
  }
}

function columnsOf(nowMs: number): Omit<Column<Round>, "sortBy">[] {
  return [
    {
      key: "round",
      head: "Round",
      isName: true,
      prefix: "Round",
      cell: (each) => (each.round_number == null ? "?" : `${each.round_number}`),
    },
    { key: "ended", head: "Ended", cell: (each) => <Ended round={each} nowMs={nowMs} /> },
    { key: "outcome", head: "Outcome", cell: (each) => <Outcome round={each} /> },
    {
      key: "took",
      head: "Took",
      hint: "From claim to report",
      isNumber: true,
      cell: (each) => numberText(each, "duration_ms", duration),
    },
    {
      key: "rows",
      head: "Rows",
      isNumber: true,
      cell: (each) => numberText(each, "rows_written"),
    },
    {
      key: "deletes",
      head: "Deletes",
      hint: "Keys whose earlier rows it deleted",
      isNumber: true,
      cell: (each) => (each.keys_deleted == null ? null : <Deletes round={each} />),
    },
    {
      key: "files",
      head: "Files",
      isNumber: true,
      cell: (each) => numberText(each, "files_written"),
    },
    {
      key: "bytes",
      head: "Bytes",
      isNumber: true,
      cell: (each) => numberText(each, "bytes_written", bytes),
    },
    {
      key: "lag",
      head: "Lag",
      hint: "Rows that the lake lacked when it was planned, and those that it left",
      isNumber: true,
      cell: (each) => lagOf(each),
    },
    {
      key: "compaction",
      head: "Compaction",
      cell: (each) =>
        each.files_compacted ? `${counted(each.files_compacted, "file")} replaced` : null,
    },
    {
      key: "links",
      head: "Links",
      cell: (each) => (each.links?.length ? <Links links={each.links} /> : null),
    },
  ];
}

function Ended({ round, nowMs }: { round: Round; nowMs: number }) {
  if (!round.ended_ms) return null;
  return (
    <time dateTime={new Date(round.ended_ms).toISOString()} title={moment(round.ended_ms)}>
      {ago(round.ended_ms, nowMs)}
    </time>
  );
}

function OutcomeWord({ round }: { round: Round }) {
  return <span className={`outcome ${round.outcome ?? ""}`}>{outcomeOf(round)}</span>;
}

export function Outcome({ round }: { round: Round }) {
  return (
    <>
      <OutcomeWord round={round} />
      {(round.reason || round.note) && (
        <span className="outcome-why">{firstLine(round.reason ?? round.note ?? "")}</span>
      )}
    </>
  );
}

function firstLine(text: string): string {
  return text.split("\n", 1)[0]!;
}

function Deletes({ round }: { round: Round }) {
  const deleted = round.keys_deleted ?? 0;
  const isEquality = round.deletes_as?.includes("equality");
  return (
    <>
      {count(deleted)}
      {isEquality && deleted > 0 && (
        <span className="hint" title={round.deletes_as ?? undefined}>
          by equality
        </span>
      )}
    </>
  );
}

/** All that a round wrote down. */
function RoundDetails({ round }: { round: Round }) {
  const phases = phasesOf(round);
  const facts: [string, string | null][] = [
    ["Started", round.started_ms ? moment(round.started_ms) : null],
    ["Ended", round.ended_ms ? moment(round.ended_ms) : null],
    ["Phases", phases.map((each) => `${each.name} ${duration(each.ms)}`).join(", ") || null],
    ["Read from the log", numberText(round, "bytes_read", bytes)],
    ["Lake snapshot", round.lake_snapshot_id ?? null],
    ["Lake table at its end", lakeTotals(round)],
    ["Deletes as", round.deletes_as ?? null],
    ["Looked up for deletes", lookupOf(round)],
    ["Compaction", round.compacted ?? null],
    ["Compacted", compactedOf(round)],
    ["Expired", expiredOf(round)],
    ["Accepted as missing", round.accepted ?? null],
    ["Worker", round.worker ?? null],
    ["Task instance", round.airflow_task ?? null],
    ["Spark application", round.spark_application ?? null],
    ["Epochs", epochsOf(round)],
  ];
  return (
    <div className="round-details">
      {round.reason && (
        <div className="last-error">
          <div className="last-error-head">
            <h3>Reason</h3>
            <CopyButton text={round.reason} label={`Copy the reason of ${nameOf(round)}`} />
          </div>
          <p className="whole">{round.reason}</p>
        </div>
      )}
      {round.note && <p className="notice whole">{round.note}</p>}
      <dl className="details">
        {facts.map(
          ([name, text]) =>
            text && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </div>
            ),
        )}
      </dl>
    </div>
  );
}

function lakeTotals(round: Round): string | null {
  const parts = [
    numberText(round, "lake_bytes", bytes),
    numberText(round, "lake_rows", (n) => `${counted(n, "row")} before deletes`),
    numberText(round, "lake_files", (n) => counted(n, "data file")),
  ].filter((each) => each !== null);
  return parts.join(", ") || null;
}

function lookupOf(round: Round): string | null {
  if (!round.lookup_files) return null;
  const size = numberText(round, "lookup_bytes", bytes);
  const time = numberText(round, "lookup_ms", (ms) => `${duration(ms)} of CPU`);
  return [counted(round.lookup_files, "file"), size, time].filter(Boolean).join(", ");
}

function compactedOf(round: Round): string | null {
  if (!round.files_compacted) return null;
  const read = numberOf(round, "compaction_read_bytes");
  const written = numberOf(round, "compaction_written_bytes");
  const sizes = read === null || written === null ? "" : `, ${bytes(read)} to ${bytes(written)}`;
  return `${counted(round.files_compacted, "file")} replaced${sizes}`;
}

function expiredOf(round: Round): string | null {
  if (!round.snapshots_expired) return null;
  const files = round.files_expired ? `, ${counted(round.files_expired, "file")} deleted` : "";
  return `${counted(round.snapshots_expired, "snapshot")}${files}`;
}

function epochsOf(round: Round): string | null {
  if (round.tiering_epoch == null) return null;
  return `tiering epoch ${round.tiering_epoch}, coordinator epoch ${round.coordinator_epoch ?? 0}`;
}
