/** Times as people say them; the exact one is in the tooltip. */
import { useNow } from "../clock";
import { ago, clockTime, moment, spanSince } from "../format";

export function Ago({ ms }: { ms: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(ms).toISOString()} title={moment(ms)}>
      {ago(ms, now)}
    </time>
  );
}

/** `for 2 h 5 min`, or `for 2 h 5 min, since 21:10 UTC`: logs are read by the clock. */
export function For({ ms, hasClock = false }: { ms: number; hasClock?: boolean }) {
  const now = useNow();
  return (
    <time dateTime={new Date(ms).toISOString()} title={`since ${moment(ms)}`}>
      for {spanSince(ms, now)}
      {hasClock && `, since ${clockTime(ms, now)}`}
    </time>
  );
}
