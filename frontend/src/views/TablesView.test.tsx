import { startServer, type PageServer, type Seen } from "../testing/pageServer";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test } from "vitest";
import { Router } from "wouter";
import type { Overview, Table } from "../api/client";
import { App } from "../App";
import { clockTime, timeZone } from "../format";
import { navigate, useHashLocation } from "../location";
import { ActionsProvider } from "../parts/Actions";
import { NOW_MS, overviewOf, tableOf } from "../testing/samples";

const HOUR_MS = 3_600_000;
const REASON = "AlreadyExists: a file is in the way\nrename it\nthen retry the table";
const FAILING = tableOf({
  path: "shop.prices",
  table: "prices",
  table_id: 4,
  health: "failing",
  status: "Failed",
  failures: 9,
  last_error: REASON,
  why: REASON,
  stuck_since_ms: NOW_MS - 2 * HOUR_MS - 60_000,
  lag_rows: 12_480,
  rounds_shown: [{ outcome: "committed", rows_written: 7 }, { outcome: "failed" }],
});

let server: PageServer;

beforeEach(() => {
  navigate("/");
  server = startServer();
});

/** Answers as the API does: it filters, counts and cuts. */
function serve(tables: Table[], changes: Partial<Overview> = {}): void {
  const by_health: Record<string, number> = {};
  for (const { health } of tables) by_health[health] = (by_health[health] ?? 0) + 1;
  const attention = tables.filter(({ health }) => ["failing", "late", "waiting"].includes(health));
  server.on(
    "GET /overview",
    overviewOf({
      total: tables.length,
      by_health: by_health as Overview["by_health"],
      attention,
      attention_total: attention.length,
      databases: [...new Set(tables.map(({ database }) => database))],
      ...changes,
    }),
  );
  server.on("GET /tables", ({ query }: Seen) => {
    const wanted = query.getAll("health");
    const found = tables.filter(
      (table) =>
        table.path.includes(query.get("search") ?? "") &&
        (wanted.length === 0 || wanted.includes(table.health)),
    );
    const offset = Number(query.get("offset"));
    return {
      json: {
        reading: { now_ms: NOW_MS, read_ms: NOW_MS, tables_read: tables.length, is_complete: true },
        total: tables.length,
        matched: found.length,
        offset,
        databases: [],
        are_rounds_read: true,
        tables: found.slice(offset, offset + Number(query.get("limit"))),
      },
    };
  });
}

function show() {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <QueryClientProvider client={queries}>
      <Router hook={useHashLocation}>
        <ActionsProvider>
          <App />
        </ActionsProvider>
      </Router>
    </QueryClientProvider>,
  );
}

const asked = () => server.requests("GET /tables").map((each) => each.query);

test("a stuck table says since when, why and what one may do", async () => {
  serve([FAILING, tableOf()]);
  show();
  expect(
    await screen.findByRole("heading", { name: "1 of 2 tables needs attention" }),
  ).toBeVisible();
  const stuck = screen.getByRole("list").querySelector("li")!;
  expect(stuck).toHaveTextContent("Failing");
  expect(stuck).toHaveTextContent(
    `for 2 h 1 min, since ${clockTime(NOW_MS - 2 * HOUR_MS - 60_000, NOW_MS)}`,
  );
  expect(screen.getByRole("contentinfo")).toHaveTextContent(
    `Times are those of the time zone ${timeZone()}. Sluice 0.1.0.`,
  );
  expect(stuck).toHaveTextContent("9 failures in a row");
  expect(stuck).toHaveTextContent("12,480 rows missing in the lake");
  expect(within(stuck).getByRole("img", { name: /last 2 rounds: 1 failed/ })).toBeVisible();
  expect(within(stuck).getByRole("button", { name: "Retry: shop.prices" })).toBeVisible();
  expect(within(stuck).queryByRole("button", { name: /^Tier now/ })).not.toBeInTheDocument();
  expect(within(stuck).getByRole("button", { name: "Pause: shop.prices" })).toBeVisible();
  expect(stuck).toHaveTextContent("then retry the table");
  const retry = within(stuck).getByRole("button", { name: "Retry: shop.prices" });
  expect(retry).toHaveAccessibleDescription(
    "Clears the failures of the table, so that its next round may start now.",
  );
  expect(retry).toHaveAttribute("title", retry.getAttribute("aria-description"));

  await userEvent.click(screen.getByRole("button", { name: "Actions of shop.prices" }));
  expect(screen.getByRole("menuitem", { name: "Tier now: shop.prices" })).toHaveAttribute(
    "aria-description",
    "Requests a round of the table without waiting for its freshness.",
  );
});

test("a late table names the round that does not end, and offers no other", async () => {
  const name = "the run manual__7 of DAG lake, Airflow prod";
  const table = tableOf({
    health: "late",
    status: "Tiering",
    why: "its round by a run of the Airflow prod has not ended",
    claimed_ms: NOW_MS - 98 * 60_000,
    tiered_by: { name, is_run: true, links: [{ name: "Run", url: "/dags/lake/runs/7" }] },
  });
  serve([table]);
  show();
  await screen.findByRole("heading", { name: "1 of 1 table needs attention" });
  const stuck = screen.getByRole("list").querySelector("li")!;
  const since = clockTime(NOW_MS - 98 * 60_000, NOW_MS);
  expect(stuck).toHaveTextContent(
    `Its round has not ended: running for 1 h 38 min, since ${since}, by ${name}.` +
      " Look at the logs of its tasks.",
  );
  expect(within(stuck).getByRole("link", { name })).toHaveAttribute("href", "/dags/lake/runs/7");
  expect(stuck).not.toHaveTextContent("next attempt");
  expect(within(stuck).queryByRole("button", { name: /^Tier now/ })).not.toBeInTheDocument();
  expect(within(stuck).getByRole("button", { name: "Pause: shop.orders" })).toBeVisible();
});

test("a round of a process has its log where the process runs", async () => {
  const late = { health: "late", status: "Tiering", claimed_by: "host:7" } as const;
  const claimed_ms = NOW_MS - 31 * 60_000;
  serve([tableOf({ ...late, claimed_ms, why: "its round by host:7 has not ended" })]);
  show();
  await screen.findByRole("heading", { name: "1 of 1 table needs attention" });
  expect(screen.getByRole("list").querySelector("li")!).toHaveTextContent(
    /Its round has not ended: running for 31 min, since .*, by host:7. Look at the log of that process./,
  );
});

test("a late table whose round has just begun needs no look at it", async () => {
  const late = { health: "late", status: "Tiering", claimed_by: "host:7" } as const;
  const claimed_ms = NOW_MS - 5_000;
  serve([tableOf({ ...late, claimed_ms, why: "its round by host:7 has not ended" })]);
  show();
  await screen.findByRole("heading", { name: "1 of 1 table needs attention" });
  const stuck = screen.getByRole("list").querySelector("li")!;
  expect(stuck).toHaveTextContent(/A round is running for 5 s, since .*, by host:7\./);
  expect(stuck).not.toHaveTextContent("has not ended");
  expect(stuck).not.toHaveTextContent("Look at");
});

test("a table that is long due says for how long", async () => {
  const due = { ...FAILING, next_attempt_ms: NOW_MS - 257 * 60_000 };
  serve([due, tableOf()]);
  show();
  const [said] = await screen.findAllByText("due for 4 h 17 min");
  const stuck = said!.closest("li");
  expect(stuck?.querySelector(".stuck-story strong")).toBeNull();
  expect(stuck).not.toHaveTextContent("next attempt");
});

test("one line tells a newcomer how much there is, and where the readers are", async () => {
  serve([FAILING, tableOf()], { lake_bytes: 9_300_000, lake_rows: 212_000, lag_rows: 5_120 });
  show();
  expect(
    await screen.findByText(
      /^2 tables, 9\.3 MB and 212,000 rows in files of the lake, 5,120 rows missing\./,
    ),
  ).toBeVisible();
  expect(screen.getByRole("link", { name: "Who reads KV snapshots" })).toHaveAttribute(
    "href",
    "#/leases",
  );
});

test("totals that nobody knows are left out", async () => {
  serve([FAILING, tableOf()], { lag_rows: 0 });
  show();
  expect(await screen.findByText(/^2 tables, no row missing\./)).toBeVisible();
});

test("if nothing is stuck, one sentence says so", async () => {
  serve([tableOf(), tableOf({ path: "shop.old", table: "old", health: "paused", paused: true })]);
  show();
  expect(await screen.findByRole("heading", { name: "Nothing is stuck" })).toBeVisible();
  expect(screen.getByRole("region", { name: "Attention" })).toHaveTextContent("1 table is paused.");
});

test("what is not known is not called well", async () => {
  const unknown = (path: string) =>
    tableOf({ path: `shop.${path}`, table: path, health: "unknown", failures: null });
  serve([unknown("a"), unknown("b")]);
  const { unmount } = show();
  expect(
    await screen.findByRole("heading", { name: "The state of all 2 tables is unknown" }),
  ).toBeVisible();
  expect(screen.queryByText(/Nothing is stuck/)).not.toBeInTheDocument();
  unmount();

  serve([unknown("a"), tableOf()]);
  const some = show();
  expect(
    await screen.findByRole("heading", { name: "Nothing is known to be stuck" }),
  ).toBeVisible();
  expect(screen.getByText(/The state of 1 table is unknown/)).toBeVisible();
  some.unmount();

  const reading = {
    now_ms: NOW_MS,
    read_ms: NOW_MS,
    tables_read: 1,
    is_complete: false,
    lags_unread: 0,
  };
  serve([tableOf()], { reading, total: 5_000 });
  show();
  expect(await screen.findByRole("heading", { name: "Nothing is stuck so far" })).toBeVisible();
});

test("a number of the head filters the list, and the address keeps it", async () => {
  serve([FAILING, tableOf()]);
  show();
  const ok = await screen.findByRole("button", { name: "OK 1" });
  expect(ok).toHaveAttribute("aria-pressed", "false");
  expect(ok).toHaveAttribute("title", "OK: none of the other states");
  expect(ok).toHaveAttribute("aria-description", "none of the other states");
  await userEvent.click(ok);
  expect(ok).toHaveAttribute("aria-pressed", "true");
  expect(location.hash).toBe("#/?health=ok");
  await waitFor(() => expect(asked().at(-1)?.getAll("health")).toEqual(["ok"]));
  expect(await screen.findByText("1 of 2 tables")).toBeVisible();
});

test("a shared address opens with its filters and its order", async () => {
  navigate("/?search=pri&health=failing&sort=lag_rows");
  serve([FAILING, tableOf()]);
  show();
  expect(await screen.findByRole("searchbox", { name: "Search tables" })).toHaveValue("pri");
  expect(asked()[0]?.toString()).toBe(
    "search=pri&health=failing&sort=lag_rows&descending=true&offset=0&limit=50",
  );
  expect(await screen.findByRole("columnheader", { name: /^Lag/ })).toHaveAttribute(
    "aria-sort",
    "descending",
  );
});

test("a header sorts, and says so", async () => {
  serve([FAILING, tableOf()]);
  show();
  const header = await screen.findByRole("columnheader", { name: /^Failures/ });
  expect(header).toHaveAttribute("aria-sort", "none");
  await userEvent.click(within(header).getByRole("button"));
  expect(header).toHaveAttribute("aria-sort", "descending");
  await waitFor(() => expect(asked().at(-1)?.get("sort")).toBe("failures"));
  expect(asked().at(-1)?.get("descending")).toBe("true");
});

test("a narrow screen sorts by a choice", async () => {
  serve([FAILING, tableOf()]);
  show();
  const sorts = await screen.findByRole("combobox", { name: "Sort by" });
  expect(sorts).toHaveValue("table");
  await userEvent.selectOptions(sorts, "Failures");
  expect(location.hash).toBe("#/?sort=failures");
  await waitFor(() => expect(asked().at(-1)?.get("descending")).toBe("true"));
  await userEvent.selectOptions(sorts, "Attention");
  expect(location.hash).toBe("#/?sort=attention");
});

test("the list has the roles and the numbers of a table", async () => {
  serve([FAILING, tableOf()]);
  show();
  const list = await screen.findByRole("table", { name: "Lake tables" });
  expect(list).toHaveAttribute("aria-rowcount", "3");
  const headers = within(list).getAllByRole("columnheader");
  expect(headers.map((each) => each.textContent)).toContain("Next attempt");
  expect(within(list).getByRole("columnheader", { name: /^Last rounds/ })).toHaveTextContent(
    "rows per round, × failed",
  );
});

test("a search is sent once the typing ends, and can be cleared", async () => {
  serve([FAILING, tableOf()]);
  show();
  await screen.findByRole("table", { name: "Lake tables" });
  await userEvent.keyboard("/");
  const box = screen.getByRole("searchbox", { name: "Search tables" });
  expect(box).toHaveFocus();
  fireEvent.change(box, { target: { value: "noth" } });
  fireEvent.change(box, { target: { value: "nothing" } });
  expect(await screen.findByRole("heading", { name: "No table matches" })).toBeVisible();
  expect(location.hash).toBe("#/?search=nothing");
  const searches = asked().map((each) => each.get("search") ?? "");
  expect(searches.filter((each) => each !== "" && each !== "nothing")).toEqual([]);
  await userEvent.click(screen.getAllByRole("button", { name: "Clear filters" })[0]!);
  expect(await screen.findByRole("table", { name: "Lake tables" })).toBeVisible();
  expect(location.hash).toBe("#/");
  expect(box).toHaveValue("");
});

test("a cluster without lake tables says how a table becomes one", async () => {
  serve([]);
  show();
  expect(await screen.findByText(/No table of this cluster is in the lake yet/)).toBeVisible();
  expect(screen.getByText("table.datalake.enabled")).toBeVisible();
});

test("if the server goes away, the data stay and are called old", async () => {
  serve([FAILING, tableOf()]);
  show();
  await screen.findByRole("table", { name: "Lake tables" });
  server.on("GET /overview", () => ({ status: 502, json: { message: "the cluster is gone" } }));
  await userEvent.click(screen.getByRole("button", { name: "Refresh" }));
  await waitFor(() =>
    expect(
      screen.getAllByRole("alert").some((each) => each.textContent === "the cluster is gone"), // without an age that ticks
    ).toBe(true),
  );
  expect(screen.getByText(/What is shown is old: it was read/)).toBeVisible();
  expect(screen.getByRole("heading", { name: "1 of 2 tables needs attention" })).toBeVisible();
});

test("what keeps the page from the truth is said above it", async () => {
  serve([FAILING, tableOf()], {
    reading: {
      now_ms: NOW_MS,
      read_ms: NOW_MS - 300_000,
      lags_unread: 0,
      tables_read: 1_200,
      is_complete: false,
    },
    total: 5_000,
    dag: { dag_id: "lake_tiering", url: "/dags/lake_tiering", is_paused: true },
  });
  show();
  expect(await screen.findByText(/The DAG lake_tiering is paused/)).toBeVisible();
  expect(screen.getByRole("link", { name: "Open the DAG" })).toHaveAttribute(
    "href",
    "/dags/lake_tiering",
  );
  expect(screen.getByText("Reading the cluster: 1,200 of 5,000 tables read.")).toBeVisible();
  expect(screen.getByText("read 5 min ago")).toBeVisible();
});

test("a viewer sees the actions, and why they are out of reach", async () => {
  serve([FAILING, tableOf()], { may_act: false, why_not: "You may not edit the DAG." });
  show();
  const retry = await screen.findByRole("button", { name: "Retry: shop.prices" });
  expect(retry).toHaveAttribute("aria-disabled", "true");
  expect(retry).toHaveAccessibleDescription("You may not edit the DAG.");
  await userEvent.click(retry);
  expect(screen.queryByRole("dialog")).not.toBeInTheDocument();
});

test("the view of the address is marked in the navigation", async () => {
  serve([FAILING]);
  show();
  const views = await screen.findByRole("navigation", { name: "Views" });
  expect(within(views).getByRole("link", { name: "Tables" })).toHaveAttribute(
    "aria-current",
    "page",
  );
  expect(within(views).getByRole("link", { name: "Leases" })).not.toHaveAttribute("aria-current");
  act(() => navigate("/leases"));
  expect(within(views).getByRole("link", { name: "Leases" })).toHaveAttribute(
    "aria-current",
    "page",
  );
  expect(document.title).toBe("Leases · Lake tiering");
});
