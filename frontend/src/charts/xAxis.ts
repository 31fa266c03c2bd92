/** The shared x axis of the charts: by time, or one step for each round. Pure. */
import { scaleLinear, scaleTime } from "d3-scale";

export type XMode = "time" | "round";

export interface Tick {
  x: number;
  label: string;
}

export interface XAxis {
  /** The middle of each round. */
  xs: number[];
  /** Where the present is, at the right of all rounds. */
  now: number;
  /** The width of a bar. */
  bar: number;
  ticks: Tick[];
  /** What the axis shows, with its unit. */
  says: string;
}

interface Point {
  endedMs: number;
  roundNumber: number | null;
}

/** Rounds that are nearer to each other than this many pixels cannot be told apart. */
const TELLABLE = 4;
const TICK_ROOM = 84;

/** By time, as long as most rounds can be told apart then. */
export function bestMode(points: Point[], nowMs: number, width: number): XMode {
  if (points.length < 3) return "time";
  const scale = timeScale(points, nowMs, width);
  let near = 0;
  for (let i = 1; i < points.length; i++) {
    if (scale(points[i]!.endedMs) - scale(points[i - 1]!.endedMs) < TELLABLE) near += 1;
  }
  return near > points.length * 0.3 ? "round" : "time";
}

/** @param width pixels between the left and the right end of the axis */
export function xAxis(points: Point[], mode: XMode, nowMs: number, width: number): XAxis {
  return mode === "time" ? byTime(points, nowMs, width) : byRound(points, width);
}

function timeScale(points: Point[], nowMs: number, width: number) {
  const first = points[0]?.endedMs ?? nowMs;
  const last = Math.max(points.at(-1)?.endedMs ?? nowMs, nowMs, first + 1000);
  const pad = Math.min(10, width / 20);
  return scaleTime([new Date(first), new Date(last)], [pad, width - pad]);
}

function byTime(points: Point[], nowMs: number, width: number): XAxis {
  const scale = timeScale(points, nowMs, width);
  const xs = points.map((each) => scale(each.endedMs));
  const gaps = xs.slice(1).map((x, i) => x - xs[i]!);
  gaps.sort((a, b) => a - b);
  const typical = gaps[Math.floor(gaps.length / 4)] ?? 16;
  const [from, to] = scale.domain() as [Date, Date];
  const label = timeLabels(to.getTime() - from.getTime());
  const ticks = scale
    .ticks(Math.max(2, Math.floor(width / TICK_ROOM)))
    .map((date) => ({ x: scale(date), label: label(date) }));
  return {
    xs,
    now: scale(to),
    bar: Math.min(16, Math.max(2, typical * 0.7)),
    ticks: within(ticks, width),
    says: "time at which rounds ended",
  };
}

function byRound(points: Point[], width: number): XAxis {
  const step = width / Math.max(points.length, 1);
  const xs = points.map((_, i) => step * (i + 0.5));
  const every = Math.max(1, Math.ceil(48 / step));
  const wanted = scaleLinear([0, points.length], [0, width]).ticks(
    Math.max(1, Math.floor(points.length / every)),
  );
  const ticks = [...new Set(wanted.map(Math.floor))]
    .filter((i) => i < points.length)
    .map((i) => ({ x: xs[i]!, label: String(points[i]!.roundNumber ?? i + 1) }));
  return {
    xs,
    now: width,
    bar: Math.min(24, Math.max(1.5, step * 0.7)),
    ticks: within(ticks, width),
    says: "number of the round",
  };
}

/** A label must not stand out of the picture. */
function within(ticks: Tick[], width: number): Tick[] {
  return ticks.filter(({ x, label }) => x >= 0 && x + label.length * 2.5 <= width + 8);
}

const DAY_MS = 86_400_000;

function timeLabels(spanMs: number): (date: Date) => string {
  const clock = new Intl.DateTimeFormat("en", {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(spanMs < 5 * 60_000 ? { second: "2-digit" } : {}),
  });
  const day = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
  return (date) => {
    const isMidnight = date.getHours() === 0 && date.getMinutes() === 0;
    return spanMs > 3 * DAY_MS || (isMidnight && spanMs > DAY_MS / 4)
      ? day.format(date)
      : clock.format(date);
  };
}

/** The index of the round whose middle is nearest; -1 if there is none. */
export function nearest(xs: number[], x: number): number {
  let best = -1;
  xs.forEach((each, i) => {
    if (best < 0 || Math.abs(each - x) < Math.abs(xs[best]! - x)) best = i;
  });
  return best;
}

/** Where a key of the keyboard moves the cursor to; null: the key is none of the cursor's. */
export function moved(at: number, count: number, key: string): number | null {
  const last = count - 1;
  const to: Record<string, number> = {
    ArrowLeft: at - 1,
    ArrowDown: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at + 1,
    PageDown: at - 10,
    PageUp: at + 10,
    Home: 0,
    End: last,
  };
  const found = to[key];
  return found === undefined ? null : Math.min(Math.max(found, 0), last);
}
