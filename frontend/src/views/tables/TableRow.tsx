/** One table of the list: a row, or a card on a narrow screen. */
import { memo, type CSSProperties } from "react";
import { Link, useLocation } from "wouter";
import type { Table } from "../../api/client";
import { useNow } from "../../clock";
import { ago, bytes, count, counted, spanSince } from "../../format";
import { useActions, whyNotDo } from "../../parts/Actions";
import { actionsFor, describe, LABELS } from "../../parts/actionTexts";
import { HealthMark } from "../../parts/HealthMark";
import { MoreIcon } from "../../parts/Icons";
import { Menu } from "../../parts/Menu";
import { Sparkline } from "../../parts/Sparkline";
import { Ago, For } from "../../parts/Times";
import {
  compactionRequested,
  nextAttempt,
  notTiered,
  reasonOf,
  requested,
} from "../../parts/words";
import { tableAddress } from "../TableViewAddress";

/** A lag that was read longer ago than this says when. */
const OLD_READING_MS = 60_000;

interface Props {
  table: Table | undefined;
  index: number;
  style: CSSProperties;
  measure: (element: Element | null) => void;
}

export const TableRow = memo(function TableRow({ table, index, style, measure }: Props) {
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      aria-busy={table ? undefined : true}
      className="row"
      data-index={index}
      ref={measure}
      style={style}
    >
      {table ? <Cells table={table} /> : <Loading />}
    </div>
  );
});

function Loading() {
  return (
    <div role="cell" className="cell-table">
      <span className="bone" />
      <span className="hidden">loading</span>
    </div>
  );
}

function Cells({ table }: { table: Table }) {
  const failures = table.failures ?? 0;
  const since = table.stuck_since_ms;
  return (
    <>
      <div role="cell" className="cell-table">
        <Link href={tableAddress(table.path)} className="row-link" title={table.path}>
          <span className="database">{table.database}.</span>
          <wbr />
          {table.table}
        </Link>
        <Why table={table} />
      </div>
      <div role="cell" className="cell-state">
        <HealthMark health={table.health} />
        {since != null && (
          <span className="quiet small">
            <For ms={since} />
          </span>
        )}
      </div>
      <div role="cell" className="number" data-label="Lag">
        <Lag table={table} />
      </div>
      <div role="cell" className={cell("lag-age", !table.lag_ms)} data-label="Oldest row">
        {table.lag_ms ? spanSince(0, table.lag_ms) : <None />}
      </div>
      <div
        role="cell"
        className={`cell-rounds${table.rounds_shown?.length ? "" : " blank"}`}
        data-label="Last rounds"
      >
        <Sparkline points={table.rounds_shown} />
      </div>
      <div role="cell" className="cell-tiered number" data-label="Last tiered">
        {table.last_tiered_ms ? <Ago ms={table.last_tiered_ms} /> : notTiered(table)}
      </div>
      <div role="cell" className={cell("failures", failures === 0)} data-label="Failures">
        {failures > 0 ? <strong className="bad">{count(failures)}</strong> : <None />}
      </div>
      <div role="cell" className="number" data-label="Next attempt">
        <Next table={table} />
      </div>
      <div role="cell" className={cell("size", table.lake_bytes == null)} data-label="Lake size">
        <Size table={table} />
      </div>
      <div role="cell" className="cell-actions">
        <RowMenu table={table} />
      </div>
    </>
  );
}

/** A card leaves out what a row shows as a dash. */
function cell(id: string, isBlank: boolean): string {
  return `cell-${id} number${isBlank ? " blank" : ""}`;
}

const None = () => (
  <span className="quiet">
    –<span className="hidden">none</span>
  </span>
);

function Why({ table }: { table: Table }) {
  const why = reasonOf(table) ?? (table.health === "tiering" ? table.tiered_by?.name : null);
  if (!why || table.health === "paused") return null;
  return (
    <span className="why" title={why}>
      {why.split("\n")[0]}
    </span>
  );
}

function Lag({ table }: { table: Table }) {
  const { lag_rows: rows, lag_read_ms: readMs } = table;
  const now = useNow();
  if (rows == null) return <span className="quiet">not read</span>;
  const isOld = readMs != null && now - readMs > OLD_READING_MS;
  return (
    <>
      {rows === 0 ? <None /> : counted(rows, "row")}
      {isOld && <span className="quiet small">read {ago(readMs, now)}</span>}
    </>
  );
}

function Next({ table }: { table: Table }) {
  const now = useNow();
  const asked = [requested(table, now), compactionRequested(table, now)].filter(Boolean);
  return (
    <>
      {nextAttempt(table, now)}
      {asked.length > 0 && <span className="quiet small">{asked.join(", ")}</span>}
    </>
  );
}

/** Of clusters whose rounds write it down. */
function Size({ table }: { table: Table }) {
  const { lake_bytes: size, lake_rows: rows } = table;
  if (size == null) return <None />;
  return (
    <>
      {bytes(size)}
      {rows != null && (
        <span className="quiet small" title="Rows in its data files, before deletes">
          {table.deletes_as && "≤ "}
          {counted(rows, "row")}
        </span>
      )}
    </>
  );
}

function RowMenu({ table }: { table: Table }) {
  const actions = useActions();
  const { ask, whyNot, whyNotTier, manner } = actions;
  const [, go] = useLocation();
  return (
    <Menu
      label={`Actions of ${table.path}`}
      button={<MoreIcon />}
      note={whyNot ?? table.why_not_act ?? whyNotTier}
      items={[
        {
          label: "Open",
          name: `Open: ${table.path}`,
          onChoose: () => go(tableAddress(table.path)),
        },
        ...actionsFor(table).map((kind) => ({
          label: LABELS[kind],
          name: `${LABELS[kind]}: ${table.path}`,
          does: describe(kind, manner),
          isDisabled: whyNotDo(actions, { kind, table }) !== null,
          onChoose: () => ask({ kind, table }),
        })),
      ]}
    />
  );
}
