/** How the page writes numbers, times and sizes: as `sluice status` does. */

const COUNT = new Intl.NumberFormat("en");

export function count(n: number): string {
  return COUNT.format(n);
}

/** The word for one thing or for several: the only place that knows which. */
export function plural(n: number, one: string, several = `${one}s`): string {
  return n === 1 ? one : several;
}

/** `3 rows`, `1 row` */
export function counted(n: number, noun: string): string {
  return `${count(n)} ${plural(n, noun)}`;
}

/** `last 3 rounds`, `last round` */
export function lastOf(n: number, noun: string): string {
  return plural(n, `last ${noun}`, `last ${counted(n, noun)}`);
}

const SPANS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A duration with one unit, or two: `57 s`, `2 h`, `3 min 5 s`. */
export function span(ms: number, units = 1): string {
  let seconds = Math.max(Math.round(ms / 1000), 0);
  const parts: string[] = [];
  for (const [size, unit] of SPANS) {
    const n = Math.floor(seconds / size);
    if (n > 0 && parts.length < units) {
      parts.push(`${n} ${unit}`);
      seconds -= n * size;
    } else if (parts.length > 0) break;
  }
  return parts.join(" ") || "0 s";
}

/** From an hour on, one unit says too little: `2 h` is anything below three hours. */
const TWO_UNITS_MS = 3_600_000;

/** `57 s ago`, `2 h 40 min ago` */
export function ago(thenMs: number, nowMs: number): string {
  return `${spanSince(thenMs, nowMs)} ago`;
}

/** How long ago a point in time is: `57 s`, `2 h 40 min`. */
export function spanSince(thenMs: number, nowMs: number): string {
  const ms = nowMs - thenMs;
  return span(ms, ms < TWO_UNITS_MS ? 1 : 2);
}

/** `35 ms`, `2.7 s`, `3 min 5 s` */
export function duration(ms: number): string {
  if (ms > 0 && ms < 1000) return `${ms} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : span(ms, 2);
}

/** `1.1 kB`, `46 MB` */
export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  let value = n;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

const MOMENT = clock({ dateStyle: "medium", timeStyle: "medium" });
const MINUTE: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit" };
const CLOCK = clock({ ...MINUTE, timeZoneName: "short" });
const DAY = clock({
  ...MINUTE,
  year: "numeric",
  month: "short",
  day: "numeric",
  timeZoneName: "short",
});
const SAME_DAY_MS = 12 * 3_600_000;

/** Of 24 hours everywhere: logs have no "PM". */
function clock(shows: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat(undefined, { ...shows, hourCycle: "h23" });
}

/** A point in time, in the browser's time zone. */
export function moment(ms: number): string {
  return MOMENT.format(ms);
}

/** `21:10 UTC`, with the day if it was more than 12 hours ago: logs may have another time zone. */
export function clockTime(ms: number, nowMs: number): string {
  return (nowMs - ms < SAME_DAY_MS ? CLOCK : DAY).format(ms);
}

/** The time zone of all times of the page: `Europe/Berlin`. */
export function timeZone(): string {
  return MOMENT.resolvedOptions().timeZone;
}
