/** The duration of rounds as stacked phases. Legend, bars and readout share one order and palette. */
import type { Round } from "../api/client";
import { PLOT_HEIGHT } from "./Chart";
import { PHASES, phasesOf, REST } from "./rounds";
import type { XAxis } from "./xAxis";
import type { YAxis } from "./yAxis";

const ORDER = [...PHASES.map((each) => each.name), REST];

const DOES = new Map([
  ...PHASES.map((each) => [each.name, `time to ${each.does}`] as const),
  [REST, "the rest of the time from claim to report: start, waits and the report"] as const,
]);

/** The class that colours a phase. */
export function phaseClass(name: string): string {
  return `phase-${Math.max(ORDER.indexOf(name), 0)}`;
}

interface Props {
  rounds: Round[];
  x: XAxis;
  y: YAxis;
  cursor: number;
}

export function PhaseBars({ rounds, x, y, cursor }: Props) {
  return rounds.map((round, i) => {
    let below = 0;
    return (
      <g key={i} className={i === cursor ? "stack under" : "stack"}>
        {phasesOf(round).map(({ name, ms }) => {
          const from = y.at(below);
          below += ms;
          const top = y.at(below);
          return (
            <rect
              key={name}
              className={phaseClass(name)}
              x={x.xs[i]! - x.bar / 2}
              width={x.bar}
              y={top}
              height={Math.max(Math.min(from, PLOT_HEIGHT) - top, 0)}
            />
          );
        })}
      </g>
    );
  });
}

function sums(rounds: Round[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const round of rounds) {
    for (const { name, ms } of phasesOf(round)) found.set(name, (found.get(name) ?? 0) + ms);
  }
  return found;
}

export function PhaseLegend({ rounds }: { rounds: Round[] }) {
  const found = sums(rounds);
  return (
    <ul className="legend">
      {ORDER.filter((name) => found.has(name)).map((name) => (
        <li key={name} title={DOES.get(name)}>
          <span className={`swatch ${phaseClass(name)}`} />
          {name === REST ? `${REST}: start and report` : name}
        </li>
      ))}
    </ul>
  );
}

/** Where most time went: `copy 61 %, lake commit 20 %` */
export function phaseSummary(rounds: Round[]): string {
  const found = sums(rounds);
  const all = [...found.values()].reduce((sum, each) => sum + each, 0);
  if (all === 0) return "not known";
  return [...found]
    .sort((a, b) => b[1] - a[1])
    .slice(0, 2)
    .map(([name, ms]) => `${name} ${Math.round((ms / all) * 100)} %`)
    .join(", ");
}
