import { startServer, type PageServer, type Seen } from "../testing/pageServer";
import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { Page } from "../testing/Page";
import { NOW_MS, overviewOf } from "../testing/samples";
import { MaintenanceView } from "./MaintenanceView";

type Maintained = Schemas["MaintainedTable"];

const STOCK: Partial<Maintained> = {
  path: "shop.stock",
  state: "problem",
  problems: ["expire snapshots: ValidationException: cannot expire\nthe ref audit"],
  needs: ["3 equality delete files to replace by positions"],
  deletes_as: "equality deletes (the lake table has no sort order)",
  compaction_requested_ms: NOW_MS - 60_000,
  last_compacted_ms: NOW_MS - 3_600_000,
  files_compacted: 6,
  snapshots_expired: 4,
  last_expired_ms: NOW_MS - 3_600_000,
  lake_files: 12,
  lake_bytes: 46_000_000,
  done: ["2 orphans removed"],
};
const ORDERS: Partial<Maintained> = { path: "shop.orders", state: "unknown" };
const RUN: Partial<Schemas["MaintenanceRunModel"]> = {
  folder: "maintain/7",
  by: "sluice_lake_maintenance, scheduled__2026-11-27",
  url: "/dags/sluice_lake_maintenance/runs/7",
  state: "ended",
  applied: false,
  began_ms: NOW_MS - 600_000,
  ended_ms: NOW_MS - 500_000,
  tables: 2,
  needed: 1,
  problems: 1,
  numbers: { snapshots_expired: 4 },
};

let server: PageServer;

function answer(changes: object = {}) {
  return {
    reading: { now_ms: NOW_MS, tables_read: 2, is_complete: true },
    runs: [RUN],
    total: 2,
    matched: 2,
    offset: 0,
    are_rounds_read: true,
    by_state: { problem: 1, unknown: 1 },
    databases: ["shop"],
    tables: [STOCK, ORDERS],
    ...changes,
  };
}

beforeEach(() => {
  location.hash = "#/maintenance";
  server = startServer().on("GET /overview", overviewOf()).on("GET /maintenance", answer());
});

const show = () =>
  render(
    <Page>
      <MaintenanceView />
    </Page>,
  );

test("a table says what it needs, what did not work, and how keys are deleted", async () => {
  show();
  const table = await screen.findByRole("table", { name: "Maintenance of tables" });
  const [, stock, orders] = within(table).getAllByRole("row");
  expect(orders).toHaveTextContent("no report");
  expect(stock).toHaveTextContent("3 equality delete files to replace by positions");
  expect(within(stock!).getByText(/^equality deletes/)).toHaveClass("warn");
  expect(stock).toHaveTextContent("6 files replaced");
  expect(stock).toHaveTextContent("4 snapshots");
  expect(stock).toHaveTextContent("46 MB");
  await userEvent.click(within(stock!).getByRole("button", { name: "More about shop.stock" }));
  const whole = within(table).getAllByText(/the ref audit/);
  expect(whole.at(-1)!.textContent).toBe(STOCK.problems![0]);
  expect(within(table).getByText("2 orphans removed")).toBeInTheDocument();
});

test("a maintenance that had a problem is not shown as if it had none", async () => {
  const of = { last_maintained_ms: NOW_MS - 7_200_000, was_applied: true };
  const tables = [
    { ...STOCK, ...of },
    { ...ORDERS, ...of, state: "ok", reported_ms: NOW_MS },
  ];
  server.on("GET /maintenance", answer({ tables }));
  show();
  const table = await screen.findByRole("table", { name: "Maintenance of tables" });
  expect(within(table).getAllByText("with a problem")).toHaveLength(1);
});

test("the last run is linked, and a dry run is named", async () => {
  show();
  const runs = await screen.findByRole("region", { name: "Last runs" });
  expect(within(runs).getByRole("link", { name: RUN.by! })).toHaveAttribute("href", RUN.url);
  expect(runs).toHaveTextContent("dry run: it changed nothing");
  expect(runs).toHaveTextContent("2 tables, 1 needed something, 4 snapshots expired");
  const outcome = within(runs).getByText("ended, 1 table with a problem");
  expect(outcome).toHaveClass("warned"); // green would say that nothing is left to do
});

test.each([
  [{ runs_read_ms: null }, "The runs of the maintenance are being read."],
  [{ runs_read_ms: NOW_MS }, "No run of the maintenance is known here."],
])("without a run it says whether they have been read: %o", async (read, said) => {
  server.on("GET /maintenance", answer({ runs: [], ...read }));
  show();
  expect(await screen.findByText(said)).toBeInTheDocument();
});

test("a run of several tasks shows each of them", async () => {
  const of = { ...RUN, dag_id: "nightly", run_id: "7", task_id: "each" };
  server.on(
    "GET /maintenance",
    answer({
      runs: [
        { ...of, folder: "a", map_index: 1, state: "failed", error: "no coordinator" },
        { ...RUN, folder: "b", dag_id: "nightly", run_id: "7", deployment_id: "east" },
        { ...of, folder: "c", map_index: 0 },
        { ...of, folder: "d", task_id: "after", url: null },
      ],
    }),
  );
  show();
  const runs = await screen.findByRole("region", { name: "Last runs" });
  expect(runs).toHaveTextContent(/3 tasks ?1 failed or lost ?3 problems/);
  const tasks = within(runs).getByRole("list", { name: `Tasks of ${RUN.by}` });
  const [after, zero, one] = within(tasks).getAllByRole("listitem");
  expect(after).toHaveTextContent(/^ended, 1 table with a problem ?after/);
  expect(within(zero!).getByRole("link", { name: "each, map index 0" })).toBeInTheDocument();
  expect(one).toHaveTextContent(
    /^failed, 1 table with a problem ?each, map index 1.*no coordinator$/,
  );
  expect(within(runs).getAllByRole("listitem")).toHaveLength(5);
  expect(tasks.closest("details")).toHaveAttribute("open");
});

test("the many tasks of a run are folded", async () => {
  const of = { ...RUN, dag_id: "nightly", run_id: "7", task_id: "each" };
  const runs = Array.from({ length: 6 }, (_, index) => ({
    ...of,
    folder: `${index}`,
    map_index: index,
  }));
  server.on("GET /maintenance", answer({ runs }));
  show();
  const said = await screen.findByText("6 tasks");
  expect(said.closest("details")).not.toHaveAttribute("open");
});

test("a run without an end says where it is, and nothing that is not known", async () => {
  const open = { ended_ms: null, at: "shop.orders", last_sign_ms: NOW_MS - 7_200_000 };
  server.on(
    "GET /maintenance",
    answer({
      runs: [
        { ...RUN, ...open, folder: "3", began_ms: 3, state: "running" },
        { ...RUN, ...open, folder: "2", began_ms: 2, state: "lost" },
        {
          ...RUN,
          folder: "1",
          began_ms: 1,
          tables: 0,
          state: "unreported",
          problem: "its reports were deleted",
        },
      ],
    }),
  );
  show();
  const runs = await screen.findByRole("region", { name: "Last runs" });
  const [running, lost, ended] = within(runs).getAllByRole("listitem");
  expect(running).toHaveTextContent(
    /^no end yet.*now at shop\.orders.*last sign \d+ d( \d+ h)? ago/,
  );
  expect(lost).toHaveTextContent(
    /^lost: no end reported.*last at shop\.orders.*last sign \d+ d( \d+ h)? ago/,
  );
  expect(ended).toHaveTextContent(/^ended.*its reports were deleted/);
  expect(ended).not.toHaveTextContent("0 tables");
});

test("the server searches, filters and sorts, and the address keeps it", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Problems 1" }));
  await userEvent.click(screen.getByRole("button", { name: "Files" }));
  await waitFor(() => {
    const { query } = server.requests("GET /maintenance").at(-1)!;
    expect(query.getAll("state")).toEqual(["problem"]);
    expect(query.get("sort")).toBe("lake_files");
    expect(query.get("descending")).toBe("true");
  });
  expect(location.hash).toBe("#/maintenance?state=problem&sort=-lake_files");
  await userEvent.keyboard("/stock");
  expect(screen.getByRole("searchbox", { name: "Search tables" })).toHaveFocus();
  await waitFor(() =>
    expect(server.requests("GET /maintenance").at(-1)!.query.get("search")).toBe("stock"),
  );
});

test("an address of a page that there is not leads to the last one", async () => {
  location.hash = "#/maintenance?page=9";
  server.on("GET /maintenance", ({ query }: Seen) => ({
    json: query.get("offset") === "0" ? answer() : { ...answer(), tables: [] },
  }));
  show();
  await screen.findByRole("table", { name: "Maintenance of tables" });
  expect(location.hash).toBe("#/maintenance");
});

test("a compaction is requested after a confirmation", async () => {
  server.on("POST /tables/shop/stock/compact", { message: "a compaction is requested" });
  show();
  await userEvent.click(await screen.findByRole("button", { name: "More about shop.stock" }));
  const button = screen.getByRole("button", { name: "Request compaction: shop.stock" });
  await waitFor(() => expect(button).toHaveAttribute("aria-disabled", "false"));
  await userEvent.click(button);
  const dialog = screen.getByRole("dialog", { name: "Request a compaction of shop.stock?" });
  await userEvent.click(within(dialog).getByRole("button", { name: "Request compaction" }));
  expect(await screen.findByText("a compaction is requested")).toBeInTheDocument();
});

test("nothing known, nothing there and nothing matching are said", async () => {
  server.on("GET /maintenance", answer({ runs: [], note: "Start `sluice ui --work-uri`." }));
  const first = show();
  expect(await screen.findByText("sluice ui --work-uri")).toBeInTheDocument();
  first.unmount();
  server.on("GET /maintenance", answer({ total: 0, matched: 0, tables: [] }));
  const second = show();
  expect(await screen.findByText("There are no lake tables")).toBeInTheDocument();
  second.unmount();
  location.hash = "#/maintenance?search=none";
  server.on("GET /maintenance", answer({ matched: 0, tables: [] }));
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Show all tables" }));
  expect(location.hash).toBe("#/maintenance");
});
