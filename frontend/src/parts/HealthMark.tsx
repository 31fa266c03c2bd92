/** The health of a table: shape, colour and word. */
import type { Health } from "../api/client";
import { HealthIcon } from "./Icons";
import { HEALTH_WORDS, meaningOf } from "./words";

export function HealthMark({ health }: { health: Health }) {
  return (
    <span className={`health health-${health}`} title={meaningOf(health)}>
      <HealthIcon health={health} />
      {HEALTH_WORDS[health]}
    </span>
  );
}
