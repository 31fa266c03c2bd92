/** One chart: its frame, axes, marks of failed rounds and the cursor. The data come as children. */
import type { ReactNode } from "react";
import type { XAxis } from "./xAxis";
import type { YAxis } from "./yAxis";

export const LEFT = 58;
export const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
export const PLOT_HEIGHT = 104;

interface Props {
  title: string;
  /** Largest, total and the like: the chart in words. */
  summary: string;
  /** Pixels of the complete picture. */
  width: number;
  x: XAxis;
  y: YAxis;
  failed: number[];
  /** The round under the cursor; -1: none. */
  cursor: number;
  legend?: ReactNode;
  isWide?: boolean;
  children: ReactNode;
}

export function Chart(props: Props) {
  const { title, summary, width, x, y, failed, cursor, legend, isWide, children } = props;
  const inner = width - LEFT - RIGHT;
  const at = x.xs[cursor];
  return (
    <figure className="chart" data-wide={isWide || undefined}>
      <figcaption>
        <span className="chart-title">{title}</span>{" "}
        <span className="chart-summary">{summary}</span>
      </figcaption>
      <svg
        width={width}
        height={TOP + PLOT_HEIGHT + BOTTOM}
        aria-hidden="true"
        focusable="false"
        data-plot
      >
        <g transform={`translate(${LEFT},${TOP})`}>
          {y.ticks.map((tick) => (
            <g key={tick.label} className="grid" transform={`translate(0,${tick.x})`}>
              <line x2={inner} />
              <text x={-8} dy="0.32em" textAnchor="end">
                {tick.label}
              </text>
            </g>
          ))}
          {x.ticks.map((tick) => (
            <g key={`${tick.x}`} className="tick" transform={`translate(${tick.x},${PLOT_HEIGHT})`}>
              <line y2={4} />
              <text y={17} textAnchor="middle">
                {tick.label}
              </text>
            </g>
          ))}
          {failed.map((i) => (
            <FailedBand key={i} x={x.xs[i]!} width={Math.max(x.bar, 5)} />
          ))}
          {at !== undefined && <line className="cursor" x1={at} x2={at} y2={PLOT_HEIGHT} />}
          {children}
          {failed.map((i) => (
            <Cross key={i} x={x.xs[i]!} y={PLOT_HEIGHT - 6} />
          ))}
        </g>
      </svg>
      {legend}
    </figure>
  );
}

function FailedBand({ x, width }: { x: number; width: number }) {
  return <rect className="failed-band" x={x - width / 2} width={width} height={PLOT_HEIGHT} />;
}

/** The mark of a failed round: a shape, not only a colour. */
function Cross({ x, y }: { x: number; y: number }) {
  return <path className="failed-mark" d={`M${x - 3.5},${y - 3.5}l7,7m0,-7l-7,7`} />;
}

interface BarsProps {
  x: XAxis;
  y: YAxis;
  values: (number | null)[];
  cursor: number;
}

export function Bars({ x, y, values, cursor }: BarsProps) {
  return values.map((value, i) => {
    if (value === null || value <= 0) return null;
    const top = Math.min(y.at(value), PLOT_HEIGHT - 1); // one pixel at least: it is not zero
    return (
      <rect
        key={i}
        className={i === cursor ? "bar under" : "bar"}
        x={x.xs[i]! - x.bar / 2}
        width={x.bar}
        y={top}
        height={PLOT_HEIGHT - top}
        rx={Math.min(1.5, x.bar / 4)}
      />
    );
  });
}
