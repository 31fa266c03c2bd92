/** The round of a late table that has not ended: since when it runs, and who runs it. */
import type { Table } from "../api/client";
import { For } from "./Times";

export function TakesLong({ table }: { table: Table }) {
  const { claimed_ms: sinceMs, tiered_by: by } = table;
  return (
    <>
      Its round has not ended
      {sinceMs != null && (
        <>
          : running <For ms={sinceMs} hasClock />
        </>
      )}
      , by <TieredBy table={table} />.{" "}
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
