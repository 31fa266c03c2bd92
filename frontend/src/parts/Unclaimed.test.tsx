import { startServer } from "../testing/pageServer";
import { render, screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { setServerTime } from "../clock";
import { clockTime } from "../format";
import { Page } from "../testing/Page";
import { NOW_MS, overviewOf, tableOf } from "../testing/samples";
import { Unclaimed } from "./Unclaimed";

const DUE_MS = NOW_MS - 4 * 3_600_000;
const DAG = { dag_id: "tiering", url: "/dags/tiering", is_paused: false };

async function shown(dag?: Schemas["DagState"]): Promise<HTMLElement> {
  setServerTime(NOW_MS, Date.now());
  const server = startServer().on("GET /overview", overviewOf(dag ? { dag } : {}));
  const table = tableOf({ health: "waiting", status: "Pending", next_attempt_ms: DUE_MS });
  render(
    <Page>
      <p data-testid="said">
        <Unclaimed table={table} />
      </p>
    </Page>,
  );
  await waitFor(() => expect(server.requests("GET /overview")).not.toHaveLength(0));
  return screen.getByTestId("said");
}

test("without Airflow: since when, and what must run", async () => {
  const said = await shown();
  expect(said).toHaveTextContent(
    `Due since ${clockTime(DUE_MS, NOW_MS)}, and no worker has claimed it. ` +
      "Check that sluice tier or a DAG runs that tiers this table.",
  );
  expect(said.textContent).not.toContain("?");
});

test("with Airflow: the state of the DAG, with a link to it", async () => {
  const said = await shown({ ...DAG, is_paused: true });
  await waitFor(() => expect(said).toHaveTextContent("The DAG tiering is paused: unpause it"));
  expect(screen.getByRole("link", { name: "tiering" })).toHaveAttribute("href", "/dags/tiering");
});

test("with Airflow: the last run that failed, with a link to it", async () => {
  const last_run_url = "/dags/tiering/runs/7";
  const last_run_ms = NOW_MS - 600_000;
  const said = await shown({ ...DAG, last_run_state: "failed", last_run_ms, last_run_url });
  await waitFor(() =>
    expect(said).toHaveTextContent("The last run of the DAG tiering failed 10 min ago: see why."),
  );
  expect(screen.getByRole("link", { name: "see why" })).toHaveAttribute("href", last_run_url);
});

test("with Airflow: what else may be wrong", async () => {
  const said = await shown({ ...DAG, is_paused: null });
  await waitFor(() => expect(said).toHaveTextContent("Check that the DAG tiering is not paused."));
});

test("with Airflow: a DAG that runs may leave the table out", async () => {
  const said = await shown({ ...DAG, last_run_state: "success" });
  await waitFor(() => expect(said).toHaveTextContent("check that this table is one of those"));
});
