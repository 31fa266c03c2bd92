/** One table in the view of maintenance: its columns, and what it shows below itself. */
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { bytes, count, counted, duration, moment } from "../format";
import { ActionButton } from "../parts/Actions";
import { CopyButton } from "../parts/Reason";
import { Ago } from "../parts/Times";
import { tableAddress } from "./TableViewAddress";
import type { Column } from "./TableViewGrid";

type Maintained = Schemas["MaintainedTable"];

/** The keys are those by which the server sorts. */
export function maintenanceColumns(all: Maintained[]): Column<Maintained>[] {
  const has = (test: (each: Maintained) => unknown) => all.some((each) => Boolean(test(each)));
  const columns: (Column<Maintained> | false)[] = [
    {
      key: "table",
      head: "Table",
      isName: true,
      isSortable: true,
      cell: (each) =>
        each.is_known === false ? (
          <>
            {each.path} <span className="hint">no such table</span>
          </>
        ) : (
          <Link href={tableAddress(each.path)}>{each.path}</Link>
        ),
    },
    {
      key: "attention",
      head: "Needs",
      hint: "As of the newest report",
      isSortable: true,
      cell: (each) =>
        isNeedy(each) ? (
          <Needs table={each} />
        ) : each.reported_ms == null ? (
          <span className="quiet">no report</span>
        ) : null,
    },
    {
      key: "last_maintained",
      head: "Maintained",
      isSortable: true,
      cell: (each) => (each.last_maintained_ms ? <Maintenances table={each} /> : null),
    },
    has((each) => each.deletes_as) && {
      key: "deletes",
      head: "Deletes as",
      hint: "How the last round that deleted keys did so",
      cell: (each) => (each.deletes_as ? <Deletes as={each.deletes_as} /> : null),
    },
    {
      key: "last_compacted",
      head: "Compacted by a round",
      isSortable: true,
      cell: (each) => (hasCompaction(each) ? <Compaction table={each} /> : null),
    },
    {
      key: "last_expired",
      head: "Snapshots expired",
      isSortable: true,
      cell: (each) => (each.last_expired_ms ? <Expired table={each} /> : null),
    },
    has((each) => each.lake_files) && {
      key: "lake_files",
      head: "Files",
      isNumber: true,
      isSortable: true,
      cell: (each) => (each.lake_files == null ? null : count(each.lake_files)),
    },
    has((each) => each.lake_bytes) && {
      key: "lake_bytes",
      head: "Size",
      isNumber: true,
      isSortable: true,
      cell: (each) => (each.lake_bytes == null ? null : bytes(each.lake_bytes)),
    },
  ];
  return columns.filter((each) => each !== false);
}

function isNeedy(table: Maintained): boolean {
  return (table.needs ?? []).length + (table.problems ?? []).length > 0;
}

function Needs({ table }: { table: Maintained }) {
  return (
    <ul className="held needs">
      {table.problems?.map((each) => (
        <li key={each} className="bad-text clamp">
          {each}
        </li>
      ))}
      {table.needs?.map((each) => (
        <li key={each}>{each}</li>
      ))}
    </ul>
  );
}

function Maintenances({ table }: { table: Maintained }) {
  return (
    <>
      <Ago ms={table.last_maintained_ms!} />
      {(table.problems ?? []).length > 0 && table.was_applied && (
        <span className="sub">with a problem</span>
      )}
      {table.gains?.map((each) => (
        <span key={each} className="sub gain">
          {withArrows(each)}
        </span>
      ))}
    </>
  );
}

/** `22 -> 1 manifests`, with an arrow that does not break at the end of a line. */
function withArrows(text: string): string {
  return text.replaceAll(" -> ", "\u00a0→\u00a0");
}

/** Equality deletes make scans slow, so they are seen at once. */
function Deletes({ as }: { as: string }) {
  if (!as.includes("equality")) return as;
  return <span className="hint warn">{as}</span>;
}

function hasCompaction(table: Maintained): boolean {
  return Boolean(table.compaction_requested_ms ?? table.last_compacted_ms);
}

function Compaction({ table }: { table: Maintained }) {
  return (
    <>
      {table.compaction_requested_ms && (
        <span className="hint warn">
          requested <Ago ms={table.compaction_requested_ms} />
        </span>
      )}
      {table.last_compacted_ms && (
        <span className="sub-line">
          <Ago ms={table.last_compacted_ms} />
        </span>
      )}
      {table.files_compacted ? (
        <span className="sub">{counted(table.files_compacted, "file")} replaced</span>
      ) : null}
    </>
  );
}

function Expired({ table }: { table: Maintained }) {
  return (
    <>
      <Ago ms={table.last_expired_ms!} />
      {table.snapshots_expired ? (
        <span className="sub">{counted(table.snapshots_expired, "snapshot")}</span>
      ) : null}
    </>
  );
}

export function More({ table }: { table: Maintained }) {
  const facts: [string, string | null | undefined][] = [
    ["Done by the last maintenance", table.done?.join(", ")],
    ["Newest report", table.line],
    ["Report of", reportOf(table)],
    ["Last compaction", compactionOf(table)],
    ["A later round compacted nothing", table.left_out],
    ["Last requested compaction", momentOf(table.request_completed_ms, "completed ")],
    ["Files expired", table.files_expired ? counted(table.files_expired, "file") : null],
    ["The next round", table.next_round],
  ];
  const known = facts.filter(([, text]) => text);
  const at = table.path.indexOf(".");
  const acted = {
    path: table.path,
    database: table.path.slice(0, at),
    table: table.path.slice(at + 1),
    paused: table.paused ?? false,
    why_not_act: table.why_not_act ?? null,
  };
  return (
    <div className="round-details">
      {table.problems?.map((text) => (
        <div key={text} className="last-error">
          <div className="last-error-head">
            <h3>Problem{table.retryable ? ": another run may not have it" : ""}</h3>
            <CopyButton text={text} label={`Copy the problem of ${table.path}`} />
          </div>
          <p className="whole">{text}</p>
        </div>
      ))}
      {known.length === 0 && <p className="quiet">Nothing more is known of this table.</p>}
      <dl className="details">
        {known.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="whole">{text}</dd>
          </div>
        ))}
      </dl>
      {table.is_known !== false && (
        <div className="actions">
          <ActionButton action={{ kind: "compact", table: acted }} className="button small" />
        </div>
      )}
    </div>
  );
}

function momentOf(ms: number | null | undefined, words: string): string | null {
  return ms ? `${words}${moment(ms)}` : null;
}

function reportOf(table: Maintained): string | null {
  if (!table.reported_ms) return null;
  const dry = table.was_applied === false ? ", a dry run: it changed nothing" : "";
  return `the run that began ${moment(table.reported_ms)}${dry}`;
}

function compactionOf(table: Maintained): string | null {
  if (!table.last_compaction && !table.last_compaction_round) return null;
  const { compaction_read_bytes: read, compaction_written_bytes: written } = table;
  const parts = [
    table.last_compaction_round ? `round ${table.last_compaction_round}` : null,
    table.last_compaction,
    read && written ? `${bytes(read)} to ${bytes(written)}` : null,
    table.compaction_ms ? `the round took ${duration(table.compaction_ms)} longer` : null,
  ];
  return parts.filter(Boolean).join(", ");
}
