import { startServer, type PageServer } from "../testing/pageServer";
import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { readFileSync } from "node:fs";
import { beforeEach, expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { Page } from "../testing/Page";
import { NOW_MS, overviewOf } from "../testing/samples";
import { LeasesView } from "./LeasesView";

type Lease = Schemas["Lease"];

const RUN: Lease = {
  lease_id: "sluice-west-c6ef648e-97e3-5f2e-95d1-8912a7000d46",
  holder: "the run manual__1 of DAG sluice_lake_tiering, Airflow west",
  holder_kind: "run",
  buckets: 4,
  held_bytes: 46_000_000,
  freed_bytes: 1_000_000,
  created_ms: NOW_MS - 7_200_000,
  renewed_ms: NOW_MS - 60_000,
  expires_ms: NOW_MS + 600_000,
  tables: [{ path: "web.sessions", table_id: 5, buckets: 4, held_bytes: 46_000_000 }],
  links: [{ name: "Run", url: "/dags/sluice_lake_tiering/runs/manual__1" }],
};
const READER: Lease = {
  lease_id: "job-7",
  holder: "a reader",
  holder_kind: "reader",
  buckets: 1,
  held_bytes: 900,
  created_ms: NOW_MS - 90_000,
  expires_ms: NOW_MS + 3_600_000,
  tables: [{ path: null, table_id: 9, buckets: 1 }],
};

let server: PageServer;

function answer(changes: object = {}) {
  return { now_ms: NOW_MS, is_complete: true, leases: [RUN, READER], ...changes };
}

beforeEach(() => {
  location.hash = "#/leases";
  server = startServer().on("GET /overview", overviewOf()).on("GET /leases", answer());
});

const show = () =>
  render(
    <Page>
      <LeasesView />
    </Page>,
  );

const rows = () =>
  within(screen.getByRole("table", { name: "Leases" }))
    .getAllByRole("row")
    .slice(1);

test("a renewal is told where the age does not tell it", async () => {
  const renewed_ms = READER.created_ms! + 300;
  server.on("GET /leases", answer({ leases: [RUN, { ...READER, renewed_ms }] }));
  show();
  await screen.findByRole("table", { name: "Leases" });
  const [run, reader] = rows();
  expect(run).toHaveTextContent(/renewed .* ago/);
  expect(reader).not.toHaveTextContent("renewed");
});

test("a lease says who holds it, what, for how long, and what that costs", async () => {
  show();
  await screen.findByRole("table", { name: "Leases" });
  const [first, second] = rows(); // the oldest first
  expect(first).toHaveTextContent("the run manual__1 of DAG sluice_lake_tiering, Airflow west");
  expect(first).toHaveTextContent("46 MB");
  expect(first).toHaveTextContent("1.0 MB freed by a drop");
  expect(within(first!).getByRole("link", { name: "web.sessions" })).toHaveAttribute(
    "href",
    "#/tables/web/sessions?section=leases",
  );
  expect(within(first!).getByRole("link", { name: "Run" })).toBeInTheDocument();
  expect(second).toHaveTextContent("dropped table 9");
  expect(screen.getByText("2 leases")).toBeInTheDocument();
});

test("columns sort, and the order is in the address", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: /^Held by/ }));
  expect(rows()[0]).toHaveTextContent("a reader");
  expect(location.hash).toBe("#/leases?sort=lease");
  await userEvent.click(screen.getByRole("button", { name: /^Held by/ }));
  expect(rows()[0]).toHaveTextContent("run manual__1");
  expect(screen.getByRole("columnheader", { name: /^Held by/ })).toHaveAttribute(
    "aria-sort",
    "descending",
  );
});

test("a drop is confirmed, sends the id, and the list is read anew", async () => {
  server.on("POST /leases/drop", () => {
    server.on("GET /leases", answer({ leases: [RUN] }));
    return { json: { message: "lease job-7 is dropped" } };
  });
  show();
  const button = await screen.findByRole("button", { name: "Drop lease: job-7" });
  await waitFor(() => expect(button).toHaveAttribute("aria-disabled", "false"));
  await userEvent.click(button);
  const dialog = screen.getByRole("dialog", { name: "Drop the lease job-7?" });
  expect(dialog).toHaveTextContent("Held by a reader.");
  expect(dialog).toHaveTextContent("fails at its next renewal");
  expect(within(dialog).getByRole("button", { name: "Cancel" })).toHaveFocus();
  await userEvent.click(within(dialog).getByRole("button", { name: "Drop lease" }));
  await waitFor(() => expect(rows()).toHaveLength(1));
  expect(server.requests("POST /leases/drop")[0]!.body).toEqual({ lease_id: "job-7" });
});

async function drop(leaseId: string, left: Lease[]): Promise<void> {
  server.on("POST /leases/drop", () => {
    server.on("GET /leases", answer({ leases: left }));
    return { json: { message: `lease ${leaseId} is dropped` } };
  });
  const button = await screen.findByRole("button", { name: `Drop lease: ${leaseId}` });
  await waitFor(() => expect(button).toHaveAttribute("aria-disabled", "false"));
  await userEvent.click(button);
  const dialog = screen.getByRole("dialog");
  await userEvent.click(within(dialog).getByRole("button", { name: "Drop lease" }));
  await waitFor(() => expect(button).not.toBeInTheDocument());
}

test("after a drop the focus is in the row that is there now", async () => {
  show();
  await drop(RUN.lease_id, [READER]); // the first row
  await waitFor(() =>
    expect(within(rows()[0]!).getByRole("link", { name: "job-7" })).toHaveFocus(),
  );
});

test("after the drop of the last lease the focus is on the heading", async () => {
  server.on("GET /leases", answer({ leases: [READER] }));
  show();
  await drop(READER.lease_id, []);
  await waitFor(() => expect(screen.getByRole("heading", { name: "Leases" })).toHaveFocus());
});

test("a lease that goes while the focus is elsewhere does not take it", async () => {
  show();
  const sort = await screen.findByRole("button", { name: /^Held by/ });
  await userEvent.click(screen.getByRole("link", { name: "job-7" }));
  sort.focus();
  await drop(RUN.lease_id, [READER]);
  sort.focus();
  server.on("GET /leases", answer({ leases: [RUN] }));
  await waitFor(() => expect(rows()[0]).toHaveTextContent("run manual__1"), { timeout: 8_000 });
  expect(sort).toHaveFocus();
});

test("an address names a lease", async () => {
  location.hash = "#/leases?lease=job-7";
  show();
  await screen.findByRole("table", { name: "Leases" });
  expect(rows()[1]).toHaveClass("row-picked");
});

test("the address of a lease that is gone says so", async () => {
  location.hash = "#/leases?lease=job-8";
  show();
  expect(await screen.findByText(/There is no lease/)).toHaveTextContent("job-8 any more");
});

test.each([{ is_complete: false }, { total: 501 }])(
  "a lease that a list with %o lacks may exist",
  async (changes) => {
    location.hash = "#/leases?lease=job-8";
    server.on("GET /leases", answer(changes));
    show();
    expect(await screen.findByText(/is not in this list/)).toHaveTextContent("job-8");
    expect(screen.queryByText(/any more/)).not.toBeInTheDocument();
  },
);

test("a list that is not complete says where it comes from", async () => {
  server.on(
    "GET /leases",
    answer({ is_complete: false, note: "Only rounds are known.", leases: [] }),
  );
  show();
  expect(await screen.findByText("Only rounds are known.")).toBeInTheDocument();
  expect(screen.getByText("No lease is known")).toBeInTheDocument();
  expect(screen.queryByText(/^Nothing keeps/)).not.toBeInTheDocument();
});

test("commands in the note are code", async () => {
  server.on("GET /leases", answer({ is_complete: false, note: "See `sluice leases` there." }));
  show();
  expect(await screen.findByText("sluice leases")).toBeInstanceOf(HTMLElement);
});

test("leases of a cluster that is away are those that were read", async () => {
  server.on("GET /leases", answer({ old: { read_ms: NOW_MS - 60_000, why: "nothing listens" } }));
  show();
  expect(await screen.findByText("The leases could not be read now.")).toBeVisible();
  expect(screen.getByText("nothing listens")).toBeVisible();
  expect(rows()).toHaveLength(2);
});

test("without leases, the view says what that means", async () => {
  server.on("GET /leases", answer({ leases: [] }));
  show();
  expect(await screen.findByText("There are no leases")).toBeInTheDocument();
});

test("the styles of the list of tables do not reach the headings of leases", async () => {
  show();
  const heading = await screen.findByRole("columnheader", { name: /^Held\s*▾?$/ });
  expect(heading).toHaveClass("number");
  const styles = readFileSync("src/views/tables/tables.css", "utf8");
  for (const name of within(heading).getByRole("button").classList)
    expect(styles).not.toMatch(new RegExp(`\\.${name}(?![\\w-])`));
});

test("a narrow screen sorts by a choice", async () => {
  show();
  const sorts = await screen.findByRole("combobox", { name: "Sort by" });
  expect(sorts).toHaveValue("age");
  await userEvent.selectOptions(sorts, "Held by");
  expect(location.hash).toBe("#/leases?sort=lease");
  expect(rows()[0]).toHaveTextContent("a reader");
});
