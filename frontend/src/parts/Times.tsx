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

/** `for 2 h`, since a point in time */
export function For({ ms }: { ms: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(ms).toISOString()} title={`since ${moment(ms)}`}>
      for {span(now - ms)}
    </time>
  );
}
