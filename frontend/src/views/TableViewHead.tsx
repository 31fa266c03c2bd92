/** The head of a table's view: health, since when, why, its last error, and key figures. */
import type { ReactNode } from "react";
import type { Schemas, Table } from "../api/client";
import { useNow } from "../clock";
import { ago, bytes, count, counted, duration, span } from "../format";
import { causeOf } from "../parts/cause";
import { HealthMark } from "../parts/HealthMark";
import { CopyButton } from "../parts/Reason";
import { Running, TieredBy } from "../parts/Running";
import { Ago, For } from "../parts/Times";
import { Unclaimed } from "../parts/Unclaimed";
import {
  compactionRequested,
  requested,
  besidesOf,
  isLateButRunning,
  isUnclaimed,
  nextAttempt,
  notTiered,
  reasonOf,
  recordedReason,
} from "../parts/words";

interface Props {
  details: Schemas["TableDetails"];
  actions: ReactNode;
}

export function Head({ details, actions }: Props) {
  const { table } = details;
  return (
    <header className="table-head">
      <div className="table-title">
        <h1>{table.path}</h1>
        <HealthMark health={table.health} />
        <Since table={table} />
      </div>
      <div className="table-tools">
        {details.links.length > 0 && <Links links={details.links} />}
        {actions}
      </div>
      {details.is_tiered === false && <NotTiered how={details.how_to_enable ?? null} />}
      <Why table={table} />
      {details.damage?.map((line) => (
        <p key={line} className="notice bad whole">
          {line}
        </p>
      ))}
      <KeyFigures details={details} />
    </header>
  );
}

function NotTiered({ how }: { how: string | null }) {
  return (
    <div className="notice">
      <p>Tiering of this table is not enabled, so that no round copies its rows to the lake.</p>
      {how && (
        <>
          <div className="last-error-head">
            <p>It is enabled by:</p>
            <CopyButton text={how} label="Copy the statements that enable it" />
          </div>
          <pre className="whole">{how}</pre>
        </>
      )}
    </div>
  );
}

export function Links({ links }: { links: Schemas["Link"][] }) {
  return (
    <ul className="links">
      {links.map(({ name, url }) => (
        <li key={url}>
          <a href={url}>{name}</a>
        </li>
      ))}
    </ul>
  );
}

function Since({ table }: { table: Table }) {
  if (!table.stuck_since_ms) return null;
  return (
    <span className="quiet">
      <For ms={table.stuck_since_ms} hasClock />
    </span>
  );
}

/** Why it is not ok. The last error is whole: nobody should have to look for its end. */
function Why({ table }: { table: Table }) {
  const reason = recordedReason(table) ? reasonOf(table) : besidesOf(table);
  const error = table.last_error;
  const others = [
    reason && reason !== error ? reason : null,
    table.stopped && !reason?.includes(table.stopped)
      ? `The last round was stopped: ${table.stopped}`
      : null,
    table.note && table.note !== reason ? table.note : null,
  ].filter((each) => each !== null);
  return (
    <>
      {error && (
        <section className="last-error" aria-label="Last error">
          <div className="last-error-head">
            <h2>
              Last error
              {table.last_error_ms && (
                <>
                  {" "}
                  <Ago ms={table.last_error_ms} />
                </>
              )}
            </h2>
            <CopyButton text={error} label={`Copy the last error of ${table.path}`} />
          </div>
          {causeOf(error) && <p className="reason-cause">{causeOf(error)}</p>}
          <p className="whole">{error}</p>
        </section>
      )}
      {others.map((line) => (
        <p key={line} className="notice whole">
          {line}
        </p>
      ))}
      {isUnclaimed(table) && (
        <p className="notice">
          <Unclaimed table={table} />
        </p>
      )}
      {isLateButRunning(table) && (
        <p className="notice">
          <Running table={table} />
        </p>
      )}
      {table.accepted && (
        <p className="notice whole">Accepted as missing from the lake: {table.accepted}</p>
      )}
    </>
  );
}

function KeyFigures({ details }: { details: Schemas["TableDetails"] }) {
  const now = useNow();
  const { table } = details;
  const failures = table.failures ?? 0;
  return (
    <dl className="figures">
      <Figure name="Lag" {...lagOf(table, now)} />
      <Figure
        name="Last tiered"
        value={table.last_tiered_ms ? <Ago ms={table.last_tiered_ms} /> : notTiered(table)}
        more={table.last_round_ms ? `that round took ${duration(table.last_round_ms)}` : null}
      />
      <Figure
        name="Next attempt"
        value={nextAttempt(table, now)}
        more={[`state ${table.status}`, requested(table, now), compactionRequested(table, now)]
          .filter(Boolean)
          .join(", ")}
      />
      <Figure
        name="Failures in a row"
        value={table.failures == null ? "unknown" : count(failures)}
        isBad={failures > 0}
        more={table.rounds ? `${counted(table.rounds, "round")} ended in all` : null}
      />
      <Figure
        name="Freshness target"
        value={details.freshness_ms == null ? "not read" : span(details.freshness_ms, 2)}
        more="how old the lake may be"
      />
      <Figure name="In the lake" {...lakeOf(table)} />
      <Figure
        name="Who tiers it now"
        value={table.status === "Tiering" ? <TieredBy table={table} /> : "nobody"}
        more={table.claimed_ms && <For ms={table.claimed_ms} />}
        isText={table.claimed_by != null}
      />
    </dl>
  );
}

interface FigureProps {
  name: string;
  value: ReactNode;
  more?: ReactNode;
  isBad?: boolean;
  isText?: boolean;
}

function Figure({ name, value, more, isBad = false, isText = false }: FigureProps) {
  return (
    <div className={isBad ? "figure bad" : "figure"}>
      <dt>{name}</dt>
      <dd>
        <span className={isText ? "figure-text" : "figure-value"}>{value}</span>
        {more && <span className="figure-more">{more}</span>}
      </dd>
    </div>
  );
}

function lagOf(table: Table, nowMs: number): Pick<FigureProps, "value" | "more"> {
  if (table.lag_rows == null) return { value: "unknown", more: "it was not read yet" };
  const read = table.lag_read_ms ? `read ${ago(table.lag_read_ms, nowMs)}` : null;
  if (table.lag_rows === 0) return { value: "none", more: read };
  const age = table.lag_ms ? `the oldest ${span(table.lag_ms, 2)} old` : null;
  return {
    value: counted(table.lag_rows, "row"),
    more: [age, read].filter(Boolean).join(", ") || null,
  };
}

/** The size of the lake table, as the newest round that told found it. */
function lakeOf(table: Table): Pick<FigureProps, "value" | "more"> {
  const { lake_bytes: size = null, lake_rows: rows = null, lake_files: files = null } = table;
  const more = [
    rows === null ? null : `${counted(rows, "row")}${table.deletes_as ? " before deletes" : ""}`,
    files === null ? null : counted(files, "file"),
  ].filter((each) => each !== null);
  if (size === null) {
    const empty = table.lake_snapshot_id ? "unknown" : "nothing";
    return { value: empty, more: table.lake_snapshot_id ? "no round told its size" : null };
  }
  return { value: bytes(size), more: more.join(", ") || null };
}
