/** What to do about a table that is due and that nobody claims: as the alert SluiceTableNotAssigned. */
import type { Schemas, Table } from "../api/client";
import { useOverview } from "../api/queries";
import { useNow } from "../clock";
import { ago, clockTime, moment } from "../format";

export function Unclaimed({ table }: { table: Table }) {
  const now = useNow();
  const { data } = useOverview();
  const due = table.next_attempt_ms;
  return (
    <>
      {due && due <= now ? (
        <>
          Due since <time title={moment(due)}>{clockTime(due, now)}</time>, and no worker has
          claimed it.{" "}
        </>
      ) : (
        "No worker has claimed it. "
      )}
      {data?.dag ? (
        <OfDag dag={data.dag} now={now} />
      ) : (
        <>
          Check that <code>sluice tier</code> or a DAG runs that tiers this table.
        </>
      )}
    </>
  );
}

function OfDag({ dag, now }: { dag: Schemas["DagState"]; now: number }) {
  const link = <a href={dag.url}>{dag.dag_id}</a>;
  if (dag.is_paused) return <>The DAG {link} is paused: unpause it in Airflow.</>;
  const when = dag.last_run_ms == null ? "" : ` ${ago(dag.last_run_ms, now)}`;
  if (dag.last_run_state === "failed")
    return (
      <>
        The last run of the DAG {link} failed{when}:{" "}
        {dag.last_run_url ? <a href={dag.last_run_url}>see why</a> : "see why"}.
      </>
    );
  if (dag.is_paused == null) return <>Check that the DAG {link} is not paused.</>;
  if (!dag.last_run_state) return <>The DAG {link} is not paused, but has had no run yet.</>;
  return <>The DAG {link} is not paused: check that this table is one of those that it tiers.</>;
}
