/** The health of a table: shape, colour and word. */
import type { Health } from "../api/client";
import { HealthIcon } from "./Icons";
import { HEALTH_MEANS, HEALTH_WORDS } from "./words";

export function HealthMark({ health }: { health: Health }) {
  return (
    <span className={`health health-${health}`} title={HEALTH_MEANS[health]}>
      <HealthIcon health={health} />
      {HEALTH_WORDS[health]}
    </span>
  );
}
