/** The y axis of a chart: from zero to a round number. Pure. */
import { scaleLinear } from "d3-scale";
import type { Tick } from "./xAxis";

export interface YAxis {
  /** The pixel of a value, from the top. */
  at: (value: number) => number;
  /** As in an x axis; `x` is the height here. */
  ticks: Tick[];
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** `950`, `1.2K`, `3M` */
export function compact(n: number): string {
  return COMPACT.format(n);
}

type Measure = "count" | "bytes" | "ms";

/** Steps of seconds, minutes and hours that people read. */
const TIME_STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000,
  300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 86_400_000,
];

export function yAxis(
  max: number,
  measure: Measure,
  height: number,
  label: (value: number) => string,
): YAxis {
  const values = measure === "ms" ? timeTicks(max) : wholeTicks(max);
  const top = values.at(-1)!;
  const scale = scaleLinear([0, top], [height, 0]);
  return { at: scale, ticks: values.map((value) => ({ x: scale(value), label: label(value) })) };
}

function wholeTicks(max: number): number[] {
  const top = Math.max(max, 1);
  const ticks = scaleLinear([0, top], [0, 1]).ticks(3).filter(Number.isInteger);
  const step = (ticks[1] ?? top) - (ticks[0] ?? 0);
  if (ticks.at(-1)! < top) ticks.push(ticks.at(-1)! + step);
  return ticks;
}

function timeTicks(max: number): number[] {
  const top = Math.max(max, 1);
  const step = TIME_STEPS_MS.find((each) => top / each <= 3) ?? Math.ceil(top / 3);
  const ticks = [0];
  while (ticks.at(-1)! < top) ticks.push(ticks.at(-1)! + step);
  return ticks;
}
