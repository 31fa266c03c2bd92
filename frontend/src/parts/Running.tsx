/** The round that a late table has now: since when it runs, who runs it, and where to look. */
import type { Table } from "../api/client";
import { For } from "./Times";
import { isTakingLong } from "./words";

export function Running({ table }: { table: Table }) {
  const { claimed_ms: sinceMs, tiered_by: by } = table;
  const since = sinceMs != null && (
    <>
      running <For ms={sinceMs} hasClock />,{" "}
    </>
  );
  if (!isTakingLong(table))
    return (
      <>
        A round is {since || "running, "}by <TieredBy table={table} />.
      </>
    );
  return (
    <>
      Its round has not ended: {since}by <TieredBy table={table} />.{" "}
      {by?.is_run ? "Look at the logs of its tasks." : "Look at the log of that process."}
    </>
  );
}

/** Who tiers a table now, with a link to the run if there is one. */
export function TieredBy({ table }: { table: Table }) {
  const by = table.tiered_by;
  const name = by?.name ?? table.claimed_by ?? "a worker";
  const url = by?.links?.[0]?.url;
  return url ? <a href={url}>{name}</a> : <>{name}</>;
}
