/** The tables that need a person: what, since when, why, and what one may do. */
import { useState, type ReactNode } from "react";
import { Link } from "wouter";
import type { Overview, Table } from "../../api/client";
import { useNow } from "../../clock";
import { count, counted, plural } from "../../format";
import { TableActions } from "../../parts/Actions";
import type { TableActionKind } from "../../parts/actionTexts";
import { HealthMark } from "../../parts/HealthMark";
import { Reason } from "../../parts/Reason";
import { Sparkline } from "../../parts/Sparkline";
import { Running } from "../../parts/Running";
import { For } from "../../parts/Times";
import { Unclaimed } from "../../parts/Unclaimed";
import {
  besidesOf,
  isStuck,
  isLateButRunning,
  isUnclaimed,
  nextAttempt,
  recordedReason,
  roundsInShort,
  storyOf,
} from "../../parts/words";
import { tableAddress } from "../TableViewAddress";

const SHOWN_FIRST = 5;
/** "Tier now" looks like a retry, but leaves the failures: it is in the menu of the list. */
const OF_FAILING: TableActionKind[] = ["retry", "pause", "resume"];
/** "Tier now" would only follow the round that is running. */
const OF_RUNNING: TableActionKind[] = ["pause", "resume"];

function actionsOf(table: Table): TableActionKind[] | undefined {
  if (table.health === "failing") return OF_FAILING;
  return isLateButRunning(table) ? OF_RUNNING : undefined;
}

interface Props {
  overview: Overview;
  /** Between the headline and the stuck tables. */
  children: ReactNode;
}

export function Attention({ overview, children }: Props) {
  const [isWhole, setWhole] = useState(false);
  const stuck = (overview.attention ?? []).filter(isStuck);
  const all = Math.max(overview.attention_total, stuck.length);
  if (all === 0)
    return (
      <>
        <Calm overview={overview} />
        {children}
      </>
    );
  const shown = isWhole ? stuck : stuck.slice(0, SHOWN_FIRST);
  return (
    <section aria-labelledby="attention">
      <h1 id="attention">
        {count(all)} of {counted(overview.total, "table")} {plural(all, "needs", "need")} attention
      </h1>
      {children}
      <ul className="attention card">
        {shown.map((table) => (
          <StuckTable key={table.path} table={table} />
        ))}
      </ul>
      {stuck.length > SHOWN_FIRST && (
        <button
          type="button"
          className="plain more"
          aria-expanded={isWhole}
          onClick={() => setWhole(!isWhole)}
        >
          {isWhole ? "Show fewer" : `Show ${counted(stuck.length - SHOWN_FIRST, "more table")}`}
        </button>
      )}
      {all > stuck.length && (
        <p className="quiet">
          These are the worst {count(stuck.length)}; the list below has all {count(all)}.
        </p>
      )}
    </section>
  );
}

function Calm({ overview }: { overview: Overview }) {
  const { by_health: by, total, reading } = overview;
  const paused = by.paused ?? 0;
  const unknown = by.unknown ?? 0;
  const fresh = by.new ?? 0;
  const isSure = reading.is_complete && !reading.error;
  if (total === 0) return <h1 className="hidden">Lake tables</h1>;
  return (
    <section className="calm" aria-label="Attention">
      <h1>
        {unknown === total
          ? `The state of ${plural(total, "the table", `all ${counted(total, "table")}`)} is unknown`
          : !isSure
            ? "Nothing is stuck so far"
            : unknown > 0
              ? "Nothing is known to be stuck"
              : "Nothing is stuck"}
      </h1>
      <p className="quiet">
        {unknown < total && "No table is known to be failing, late or waiting for a worker."}
        {unknown > 0 &&
          unknown < total &&
          ` The state of ${counted(unknown, "table")} is unknown: it cannot be read, or no round is recorded.`}
        {fresh > 0 &&
          ` ${counted(fresh, "table")} ${plural(fresh, "is", "are")} new: no round has tiered ${plural(fresh, "it", "them")} yet.`}
        {paused > 0 && ` ${counted(paused, "table")} ${plural(paused, "is", "are")} paused.`}
      </p>
    </section>
  );
}

/** `next attempt: in 2 min`, but `due for 4 h`. */
function attempt(next: string): string {
  return next.startsWith("due") ? next : `next attempt: ${next}`;
}

function StuckTable({ table }: { table: Table }) {
  const now = useNow();
  const reason = recordedReason(table);
  const said = besidesOf(table);
  const since = table.stuck_since_ms;
  return (
    <li className={`stuck health-${table.health}`}>
      <div className="stuck-head">
        <h2>
          <Link href={tableAddress(table.path)}>{table.path}</Link>
        </h2>
        <p className="stuck-state">
          <HealthMark health={table.health} />
          {since != null && (
            <strong>
              <For ms={since} hasClock />
            </strong>
          )}
        </p>
      </div>
      <p className="stuck-story">
        {storyOf(table, now).map((part) => (
          <span key={part}>{part}</span>
        ))}
        {!isLateButRunning(table) && <span>{attempt(nextAttempt(table, now))}</span>}
      </p>
      {reason && (
        <>
          {table.health === "late" && <p className="stuck-said">The last round was stopped:</p>}
          <Reason text={reason} of={table.path} />
        </>
      )}
      {(said || isUnclaimed(table) || isLateButRunning(table)) && (
        <p className="stuck-said">
          {said} {isUnclaimed(table) && <Unclaimed table={table} />}
          {isLateButRunning(table) && <Running table={table} />}
        </p>
      )}
      <div className="stuck-side">
        {(table.rounds_shown ?? []).length > 0 && (
          <div className="stuck-rounds">
            <span className="quiet">{roundsInShort(table)}</span>
            <Sparkline points={table.rounds_shown} />
          </div>
        )}
        <TableActions table={table} only={actionsOf(table)} />
      </div>
    </li>
  );
}
