/** How many tables are in which state: each number is a filter. */
import type { Health, Overview } from "../../api/client";
import { count } from "../../format";
import { HealthIcon } from "../../parts/Icons";
import { HEALTH_MEANS, HEALTH_WORDS, meaningOf } from "../../parts/words";
import { HEALTHS } from "./filters";

interface Props {
  overview: Overview | undefined;
  chosen: Health[];
  onToggle: (health: Health) => void;
}

export function HealthStrip({ overview, chosen, onToggle }: Props) {
  return (
    <div className="strip" role="group" aria-label="Filter by state">
      {HEALTHS.map((health) => {
        const n = overview?.by_health[health] ?? 0;
        return (
          // eslint-disable-next-line jsx-a11y/role-supports-aria-props -- all roles do, in ARIA 1.3
          <button
            key={health}
            type="button"
            className={`tile health-${health}${n === 0 ? " none" : ""}`}
            aria-pressed={chosen.includes(health)}
            title={meaningOf(health)}
            aria-description={HEALTH_MEANS[health]}
            onClick={() => onToggle(health)}
          >
            <span className="tile-name">
              <HealthIcon health={health} />
              {HEALTH_WORDS[health]}
            </span>{" "}
            <span className="tile-count">{overview ? count(n) : "–"}</span>
          </button>
        );
      })}
    </div>
  );
}
