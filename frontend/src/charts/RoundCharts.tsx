/** The newest rounds of a table as charts with one cursor. The arrow keys move it. */
import { area, curveStepAfter, line } from "d3-shape";
import {
  useId,
  useMemo,
  useState,
  type KeyboardEvent,
  type PointerEvent,
  type ReactNode,
} from "react";
import type { Round } from "../api/client";
import { bytes, count, counted, lastOf, moment, span } from "../format";
import { Bars, Chart, LEFT, PLOT_HEIGHT, RIGHT } from "./Chart";
import { PhaseBars, PhaseLegend, phaseSummary } from "./PhaseBars";
import { Readout } from "./Readout";
import { isFailed, numberOf, phasesOf, sentenceOf } from "./rounds";
import { useWidth } from "./useWidth";
import { bestMode, moved, nearest, xAxis, type XAxis, type XMode } from "./xAxis";
import { compact, yAxis, type YAxis } from "./yAxis";
import "./charts.css";

interface Props {
  /** The oldest first. */
  rounds: Round[];
  nowMs: number;
  /** The chosen x axis; null: the one that tells more. */
  mode: XMode | null;
  onMode: (mode: XMode) => void;
  /** The round that is picked, by index; it stays after the pointer has left. */
  picked: number;
  onPick: (index: number) => void;
  /** Rows that the lake lacks at present; null: not known. */
  lagRows?: number | null | undefined;
}

export function RoundCharts({ rounds, nowMs, mode, onMode, picked, onPick, lagRows }: Props) {
  const [total, measure] = useWidth(720);
  const [hovered, setHovered] = useState<number | null>(null);
  const help = useId();
  const columns = total >= 900 ? 2 : 1;
  const width = Math.floor((total - (columns - 1) * GAP - columns * 2 * PAD) / columns);
  const wide = total - 2 * PAD;
  const points = useMemo(
    () =>
      rounds.map((each) => ({
        endedMs: each.ended_ms ?? 0,
        roundNumber: each.round_number ?? null,
      })),
    [rounds],
  );
  const shownMode = mode ?? bestMode(points, nowMs, innerOf(width));
  const x = useMemo(
    () => xAxis(points, shownMode, nowMs, innerOf(width)),
    [points, shownMode, nowMs, width],
  );
  const wideX = useMemo(
    () => xAxis(points, shownMode, nowMs, innerOf(wide)),
    [points, shownMode, nowMs, wide],
  );
  const failed = useMemo(() => rounds.flatMap((each, i) => (isFailed(each) ? [i] : [])), [rounds]);
  const cursor = Math.min(hovered ?? picked, rounds.length - 1);
  const round = rounds[cursor];
  if (!round) return null;

  const under = (event: PointerEvent<HTMLElement>) => {
    const plot = (event.target as Element).closest("svg[data-plot]");
    const { xs } = plot?.closest("[data-wide]") ? wideX : x;
    return plot ? nearest(xs, event.clientX - plot.getBoundingClientRect().left - LEFT) : null;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const to = moved(picked, rounds.length, event.key);
    if (to === null || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    setHovered(null);
    onPick(to);
  };
  const ended = moment(round.ended_ms ?? nowMs); // an age would be announced at each tick
  return (
    <div className="round-charts" ref={measure}>
      <Readout round={round} nowMs={nowMs} />
      <div className="chart-head">
        <p className="chart-axis" id={help}>
          Each mark is a round, placed by the {x.says}.{" "}
          <span className="cursor-key">
            <svg width="6" height="12" aria-hidden="true">
              <line className="cursor" x1="3" x2="3" y2="12" />
            </svg>{" "}
            selected round
          </span>{" "}
          {failed.length > 0 && (
            <span className="failed-key">
              <svg width="10" height="10" aria-hidden="true">
                <path className="failed-mark" d="M1.5,1.5l7,7m0,-7l-7,7" />
              </svg>{" "}
              {counted(failed.length, "round")} failed.
            </span>
          )}
        </p>
        <ModeChoice mode={shownMode} onMode={onMode} />
      </div>
      {/* A slider: screen readers say the round at each move of the keys. */}
      <div
        className="chart-grid"
        data-columns={columns}
        role="slider"
        tabIndex={0}
        aria-label={`Charts of the ${lastOf(rounds.length, "round")}`}
        aria-describedby={help}
        aria-valuemin={1}
        aria-valuemax={rounds.length}
        aria-valuenow={cursor + 1}
        aria-valuetext={sentenceOf(round, ended)}
        onKeyDown={onKeyDown}
        onPointerMove={(event) => setHovered(under(event))}
        onPointerLeave={() => setHovered(null)}
        onClick={(event) => {
          const at = under(event as unknown as PointerEvent<HTMLElement>);
          if (at !== null && at >= 0) onPick(at);
        }}
      >
        <Charts
          plot={{ rounds, width, x, failed, cursor, lagRows: lagRows ?? null }}
          last={columns === 2 ? { width: wide, x: wideX, isWide: true } : {}}
        />
      </div>
      <Summaries rounds={rounds} />
    </div>
  );
}

const GAP = 16;
const PAD = 12;

function innerOf(width: number): number {
  return Math.max(width - LEFT - RIGHT, 40);
}

function ModeChoice({ mode, onMode }: { mode: XMode; onMode: (mode: XMode) => void }) {
  const name = useId();
  return (
    <fieldset className="choice">
      <legend className="hidden">Horizontal axis</legend>
      {(["time", "round"] as const).map((each) => (
        <label key={each}>
          <input type="radio" name={name} checked={mode === each} onChange={() => onMode(each)} />
          <span>By {each}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface Plot {
  rounds: Round[];
  width: number;
  x: XAxis;
  failed: number[];
  cursor: number;
  lagRows: number | null;
  /** Whether it fills a row of two. */
  isWide?: boolean;
}

const SHOWN: { isShown: (has: Has, plot: Plot) => boolean; View: (plot: Plot) => ReactNode }[] = [
  {
    isShown: (has) => has("rows_written"),
    View: (plot) => <CountBars {...plot} field="rows_written" title="Rows written" />,
  },
  { isShown: (has) => has("duration_ms"), View: PhaseChart },
  {
    isShown: (has, { lagRows }) =>
      has("lag_rows_before") || has("lag_rows_after") || (lagRows ?? 0) > 0,
    View: LagChart,
  },
  {
    isShown: (has) => has("files_written"),
    View: (plot) => <CountBars {...plot} field="files_written" title="Files written" />,
  },
  {
    isShown: (has) => has("keys_deleted"),
    View: (plot) => <CountBars {...plot} field="keys_deleted" title="Keys deleted" />,
  },
  { isShown: (has) => has("lake_bytes"), View: LakeChart },
];

type Has = (field: string) => boolean;

/** @param last what is different of the last chart, if it is alone in its row */
function Charts({ plot, last }: { plot: Plot; last: Partial<Plot> }) {
  const has: Has = (field) => plot.rounds.some((each) => (numberOf(each, field) ?? 0) > 0);
  const shown = SHOWN.filter(({ isShown }) => isShown(has, plot));
  const isOdd = shown.length % 2 === 1;
  return shown.map(({ View }, i) => (
    <View
      key={SHOWN.findIndex((each) => each.View === View)}
      {...plot}
      {...(isOdd && i === shown.length - 1 ? last : {})}
    />
  ));
}

function CountBars({ field, title, ...plot }: Plot & { field: string; title: string }) {
  const values = plot.rounds.map((each) => numberOf(each, field));
  const y = yAxis(largest(values), "count", PLOT_HEIGHT, compact);
  return (
    <Chart {...plot} y={y} title={title} summary={totals(values)}>
      <Bars x={plot.x} y={y} values={values} cursor={plot.cursor} />
    </Chart>
  );
}

function PhaseChart(plot: Plot) {
  const y = yAxis(
    // Not their durations: phases of several clocks may together be longer.
    largest(plot.rounds.map((each) => phasesOf(each).reduce((sum, { ms }) => sum + ms, 0))),
    "ms",
    PLOT_HEIGHT,
    timeTick,
  );
  return (
    <Chart
      {...plot}
      y={y}
      title="Seconds by phase"
      summary={phaseSummary(plot.rounds)}
      legend={<PhaseLegend rounds={plot.rounds} />}
    >
      <PhaseBars rounds={plot.rounds} x={plot.x} y={y} cursor={plot.cursor} />
    </Chart>
  );
}

/** The lag after each round as a line; a stem shows how much the round took off. */
function LagChart(plot: Plot) {
  const before = plot.rounds.map((each) => numberOf(each, "lag_rows_before"));
  const after = plot.rounds.map((each) => numberOf(each, "lag_rows_after"));
  const { lagRows } = plot;
  const y = yAxis(largest([...before, ...after, lagRows]), "count", PLOT_HEIGHT, compact);
  const known = after.flatMap((value, i) => (value === null ? [] : [{ i, value }]));
  const path = line<{ i: number; value: number }>()
    .x((d) => plot.x.xs[d.i]!)
    .y((d) => y.at(d.value));
  const newest = known.at(-1);
  const summary =
    lagRows !== null
      ? `${lagRows === 0 ? "none" : counted(lagRows, "row")} missing now`
      : newest === undefined
        ? "not known"
        : `${counted(newest.value, "row")} after the newest round`;
  return (
    <Chart {...plot} y={y} title="Lag before and after, in rows" summary={summary}>
      {before.map((value, i) =>
        value === null || after[i] == null ? null : (
          <Stem key={i} x={plot.x.xs[i]!} from={y.at(value)} to={y.at(after[i]!)} />
        ),
      )}
      <path className="lag-line" d={path(known) ?? ""} />
      {lagRows !== null && (
        <Present
          x={plot.x.now}
          y={y.at(lagRows)}
          from={newest ? { x: plot.x.xs[newest.i]!, y: y.at(newest.value) } : null}
        />
      )}
      {known.map(({ i, value }) => (
        <circle
          key={i}
          className={i === plot.cursor ? "lag-dot under" : "lag-dot"}
          cx={plot.x.xs[i]!}
          cy={y.at(value)}
          r={i === plot.cursor ? 4 : Math.min(2.5, plot.x.bar / 2)}
        />
      ))}
    </Chart>
  );
}

/** From the newest round to what is true now: dashed, because no round says it. */
function Present({ x, y, from }: { x: number; y: number; from: { x: number; y: number } | null }) {
  const isFalling = from !== null && from.y < y - 4; // the label must not lie on the line
  return (
    <g>
      {from && <path className="lag-line to-now" d={`M${from.x},${from.y}L${x},${y}`} />}
      <circle className="lag-dot" cx={x} cy={y} r="2.5" />
      <text x={x} y={isFalling && y < PLOT_HEIGHT - 16 ? y + 14 : y - 6} textAnchor="end">
        now
      </text>
    </g>
  );
}

function Stem({ x, from, to }: { x: number; from: number; to: number }) {
  if (to - from < 2) return null;
  return <path className="lag-stem" d={`M${x - 2},${from}h4m-2,0V${to}`} />;
}

function LakeChart(plot: Plot) {
  const values = plot.rounds.map((each) => numberOf(each, "lake_bytes"));
  const known = values.flatMap((value, i) => (value === null ? [] : [{ i, value }]));
  const y = bytesAxis(largest(values));
  const x = (d: { i: number }) => plot.x.xs[d.i]!;
  const top = (d: { value: number }) => y.at(d.value);
  type Known = { i: number; value: number };
  const shape = area<Known>().x(x).y0(PLOT_HEIGHT).y1(top).curve(curveStepAfter);
  const path = line<Known>().x(x).y(top).curve(curveStepAfter);
  const newest = known.at(-1)!;
  const under = known.find((each) => each.i === plot.cursor);
  return (
    <Chart {...plot} y={y} title="Size in the lake" summary={`${bytes(newest.value)} now`}>
      <path className="size-area" d={shape(known) ?? ""} />
      <path className="lag-line" d={path(known) ?? ""} />
      <Present x={plot.x.now} y={top(newest)} from={{ x: x(newest), y: top(newest) }} />
      {under && <circle className="lag-dot under" cx={x(under)} cy={top(under)} r={4} />}
    </Chart>
  );
}

/** `90 s` rather than `1 min 30 s`: there is little room. */
function timeTick(ms: number): string {
  if (ms === 0) return "0 s";
  if (ms < 1000) return `${ms} ms`;
  return ms < 180_000 ? `${ms / 1000} s` : span(ms, 2);
}

/** Round numbers of the unit that the largest value has. */
function bytesAxis(max: number): YAxis {
  const unit = 1000 ** Math.floor(Math.log10(Math.max(max, 1)) / 3);
  const y = yAxis(max / unit, "count", PLOT_HEIGHT, (value) => bytes(value * unit));
  return { ticks: y.ticks, at: (value) => y.at(value / unit) };
}

function largest(values: (number | null)[]): number {
  return values.reduce<number>((most, each) => Math.max(most, each ?? 0), 0);
}

function totals(values: (number | null)[]): string {
  const total = values.reduce<number>((sum, each) => sum + (each ?? 0), 0);
  return `${count(total)} in all, at most ${count(largest(values))}`;
}

/** What the pictures say, for screen readers; the list of rounds has every value. */
function Summaries({ rounds }: { rounds: Round[] }) {
  const first = rounds[0]!;
  const last = rounds.at(-1)!;
  const failed = rounds.filter(isFailed).length;
  return (
    <div className="hidden">
      <p>
        {counted(rounds.length, "round")} between {moment(first.ended_ms ?? 0)} and{" "}
        {moment(last.ended_ms ?? 0)}; {failed} of them failed. The list of rounds below has all
        values.
      </p>
      <p>Rows written: {totals(rounds.map((each) => each.rows_written ?? null))}.</p>
      <p>Seconds by phase: {phaseSummary(rounds)}.</p>
      <p>Files written: {totals(rounds.map((each) => each.files_written ?? null))}.</p>
    </div>
  );
}
