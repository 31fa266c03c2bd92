/** Times as people say them; the exact one is in the tooltip. */
import { useNow } from "../clock";
import { ago, moment, span } from "../format";

export function Ago({ ms }: { ms: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(ms).toISOString()} title={moment(ms)}>
      {ago(ms, now)}
    </time>
  );
}

/** Below this, a second unit says more. */
const EXACT_MS = 10 * 3_600_000;

/** `for 2 h 5 min`, since a point in time */
export function For({ ms }: { ms: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(ms).toISOString()} title={`since ${moment(ms)}`}>
      for {span(now - ms, now - ms < EXACT_MS ? 2 : 1)}
    </time>
  );
}
