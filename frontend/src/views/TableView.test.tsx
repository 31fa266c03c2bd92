import { startServer, type PageServer } from "../testing/pageServer";
import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test } from "vitest";
import answers from "../testing/answers.json";
import { overviewOf } from "../testing/samples";
import { Page } from "../testing/Page";
import { TableView } from "./TableView";

let server: PageServer;

beforeEach(() => {
  location.hash = "";
  server = startServer()
    .on("GET /overview", overviewOf())
    .on("GET /tables/shop/prices", answers.prices)
    .on("GET /tables/shop/prices/rounds", answers.orders_rounds)
    .on("GET /tables/shop/prices/splits", answers.visits_splits);
});

function show(table = "prices") {
  return render(
    <Page>
      <TableView database="shop" table={table} />
    </Page>,
  );
}

test("a requested round and compaction are told to everybody who looks", async () => {
  const table = {
    ...answers.prices.table,
    ...{ status: "Pending", failures: 0, last_error: null, requested_ms: Date.now() - 240_000 },
    compaction_requested_ms: Date.now() - 7_200_000,
  };
  server.on("GET /tables/shop/prices", { ...answers.prices, table });
  show();
  const figure = (await screen.findByText("Next attempt")).closest("div");
  expect(figure).toHaveTextContent("state Pending, round requested");
  expect(figure).toHaveTextContent("compaction requested");
  const [button] = await screen.findAllByRole("button", { name: "Tier now: shop.prices" });
  await waitFor(() => expect(button).toHaveAttribute("aria-disabled", "false"));
  await userEvent.click(button!);
  expect(screen.getByRole("dialog")).toHaveTextContent("is requested already");
});

test("a failing table says since when and why, whole, with what may be done", async () => {
  show();
  const error = await screen.findByRole("region", { name: "Last error" });
  expect(error).toHaveTextContent(answers.prices.table.last_error);
  expect(within(error).getByRole("button", { name: /Copy/ })).toBeInTheDocument();
  expect(screen.getByText("Failing")).toBeInTheDocument();
  expect(screen.getByText(/^for .*, since /)).toBeInTheDocument();
  const actions = screen.getByRole("group", { name: "Actions of shop.prices" });
  const names = within(actions).getAllByRole("button");
  expect(names.map((each) => each.textContent)).toEqual(["Retry", "Tier now", "Pause"]);
  const figure = (name: string) => screen.getByText(name).closest("div");
  expect(figure("Failures in a row")).toHaveTextContent("1");
  expect(figure("Last tiered")).toHaveTextContent("not yet");
  expect(figure("Lag")).toHaveTextContent("3 rows");
});

test("a round shows its reason whole on a click", async () => {
  show();
  const list = await screen.findByRole("table", { name: "Rounds, the newest first" });
  await userEvent.click(within(list).getByRole("button", { name: /^Show each of the rounds/ }));
  expect(within(list).getAllByText("failed")).toHaveLength(2);
  const failed = answers.orders_rounds.rounds.find((each) => each.round_number === 10)!;
  await userEvent.click(within(list).getByRole("button", { name: "More about Round 10" }));
  const reasons = within(list).getAllByText(failed.reason!);
  expect(reasons.some((each) => each.classList.contains("whole"))).toBe(true);
  expect(within(list).getByText("Worker").nextSibling).toHaveTextContent(failed.worker!);
  expect(within(list).getByRole("button", { name: "Less about Round 10" })).toHaveAttribute(
    "aria-expanded",
    "true",
  );
});

test("a round names its task instance and its Spark application, without links, too", async () => {
  const rounds = answers.orders_rounds.rounds.map((each) => ({
    ...each,
    airflow_task: "sluice_lake_tiering.tier.manual__1",
    spark_application: "application_17_0042",
  }));
  server.on("GET /tables/shop/prices/rounds", { ...answers.orders_rounds, rounds });
  show();
  const [more] = await screen.findAllByRole("button", { name: /^More about/ });
  await userEvent.click(more!);
  expect(screen.getByText("sluice_lake_tiering.tier.manual__1")).toBeVisible();
  expect(screen.getByText("application_17_0042")).toBeVisible();
});

test("links of a round lead to its task", async () => {
  const rounds = answers.orders_rounds.rounds.map((each) => ({
    ...each,
    links: [{ name: "Task instance", url: `/dags/x/runs/${each.round_number}` }],
  }));
  server.on("GET /tables/shop/prices/rounds", { ...answers.orders_rounds, rounds });
  show();
  const links = await screen.findAllByRole("link", { name: "Task instance" });
  expect(links[0]).toHaveAttribute("href", "/dags/x/runs/12");
});

test("each section has an address", async () => {
  show();
  await userEvent.click(await screen.findByRole("link", { name: "Definition" }));
  expect(location.hash).toBe("#/tables/shop/prices?section=definition");
  const columns = screen.getByRole("table", { name: "Columns" });
  expect(within(columns).getByText("BIGINT NOT NULL")).toBeInTheDocument();
  expect(screen.getByRole("link", { name: "Definition" })).toHaveAttribute("aria-current", "page");
});

test("a split that is on two pages is shown once, and the view says when it was read", async () => {
  location.hash = "#/tables/shop/prices?section=splits";
  const [one, two, three] = answers.visits_splits.splits;
  server.on("GET /tables/shop/prices/splits", ({ query }: { query: URLSearchParams }) => ({
    json: {
      ...answers.visits_splits,
      total: 4,
      offset: Number(query.get("offset")),
      splits: query.get("offset") === "0" ? [one, two] : [two, three],
    },
  }));
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Read more splits" }));
  const splits = screen.getByRole("table", { name: "Splits, the largest lag first" });
  await waitFor(() => expect(within(splits).getAllByRole("row")).toHaveLength(4));
  expect(screen.getByText(/3 splits.*; read/)).toBeInTheDocument();
});

test("splits are filtered, and the filter is in the address", async () => {
  location.hash = "#/tables/shop/prices?section=splits";
  show();
  const [first] = answers.visits_splits.splits;
  const splits = await screen.findByRole("table", { name: "Splits, the largest lag first" });
  const all = within(splits).getAllByRole("row").length - 1;
  expect(all).toBe(answers.visits_splits.splits.length);
  await userEvent.type(screen.getByRole("searchbox", { name: /^Search / }), `${first!.partition}`);
  await waitFor(() => expect(location.hash).toContain(`filter=${first!.partition}`));
  const matched = answers.visits_splits.splits.filter(
    (each) => each.partition === first!.partition,
  ).length;
  expect(within(splits).getAllByRole("row")).toHaveLength(matched + 1);

  await userEvent.clear(screen.getByRole("searchbox", { name: /^Search / }));
  await userEvent.type(screen.getByRole("searchbox", { name: /^Search / }), "none such");
  await userEvent.click(await screen.findByRole("button", { name: "Show all splits" }));
  expect(location.hash).toBe("#/tables/shop/prices?section=splits");
});

test("a table that does not exist says so, with ways back", async () => {
  server.on("GET /tables/shop/gone", () => ({
    status: 404,
    json: { error: "TableNotExist", message: "table shop.gone does not exist" },
  }));
  show("gone");
  expect(await screen.findByText("There is no such lake table")).toBeInTheDocument();
  expect(screen.getByText("table shop.gone does not exist")).toBeInTheDocument();
  expect(screen.getByRole("link", { name: "See all tables" })).toHaveAttribute("href", "#/");
  expect(server.requests("GET /tables/shop/gone")).toHaveLength(1); // no vain second try
});

test("an error shows the server's message, and reads again", async () => {
  server.on("GET /tables/shop/prices", () => ({
    status: 502,
    json: { error: "NetworkError", message: "the coordinator does not answer" },
  }));
  show();
  expect(await screen.findByText("the coordinator does not answer")).toBeInTheDocument();
  server.on("GET /tables/shop/prices", answers.prices);
  await userEvent.click(screen.getByRole("button", { name: "Read again" }));
  expect(await screen.findByRole("region", { name: "Last error" })).toBeInTheDocument();
});

const AWAY = { read_ms: answers.prices.table.status_read_ms, why: "nothing listens at `fluss:1`" };

test("a cluster that is away leaves what was read, and says since when and why", async () => {
  server
    .on("GET /tables/shop/prices", { ...answers.prices, old: AWAY })
    .on("GET /tables/shop/prices/rounds", { ...answers.orders_rounds, old: AWAY });
  show();
  expect(await screen.findByText("The table could not be read now.")).toBeVisible();
  expect(screen.getByText(/^Shown is what was read/)).toHaveTextContent(/ago\.$/);
  expect(screen.getByText("fluss:1").tagName).toBe("CODE");
  expect(await screen.findByRole("table", { name: "Rounds, the newest first" })).toBeVisible();
  expect(screen.queryByText("The rounds could not be read now.")).toBeNull(); // said once
});

test("where the head of the page says why, a view says only since when", async () => {
  const overview = overviewOf();
  const reading = { ...overview.reading, error: "NetworkError: nothing listens" };
  server
    .on("GET /overview", { ...overview, reading })
    .on("GET /tables/shop/prices", { ...answers.prices, old: AWAY });
  show();
  expect(await screen.findByText(/^The table as read/)).toHaveTextContent(/ago\.$/);
  expect(screen.queryByText("The table could not be read now.")).toBeNull();
});

test("a table that was never open has its state, and not its definition", async () => {
  const unread = { bucket_count: null, freshness_ms: null, created_ms: null, columns: [] };
  server.on("GET /tables/shop/prices", { ...answers.prices, ...unread, old: AWAY });
  location.hash = "#/tables/shop/prices?section=definition";
  show();
  expect(await screen.findByText(/^The definition was not read/)).toBeVisible();
  expect(screen.getByText("Freshness target").closest("div")).toHaveTextContent("not read");
  expect(screen.getByRole("region", { name: "Last error" })).toBeVisible();
});

test("an answer of the server is not asked for twice at once", async () => {
  server.on("GET /tables/shop/prices", () => ({
    status: 502,
    json: { error: "NetworkError", message: "the cluster did not answer lately" },
  }));
  show();
  expect(await screen.findByText("the cluster did not answer lately")).toBeVisible();
  expect(server.requests("GET /tables/shop/prices")).toHaveLength(1);
});

test("a table without rounds says who records one", async () => {
  server.on("GET /tables/shop/prices/rounds", { ...answers.orders_rounds, rounds: [] });
  show();
  expect(await screen.findByText("No round of this table is recorded yet")).toBeInTheDocument();
});

test("the figures of the head are named for what they are", async () => {
  show();
  const nobody = await screen.findByText("nobody");
  expect(nobody).toHaveClass("figure-value");
  expect(screen.getByText("Freshness target")).toBeInTheDocument();
});

test("failures in a row with the same reason say it once, and each on a click", async () => {
  const [first] = answers.orders_rounds.rounds;
  const reason = "AlreadyExists: a file is in the way\nrename it";
  const failed = [15, 14, 13].map((round_number) => ({
    ...first,
    round_number,
    ended_ms: first!.ended_ms + round_number,
    outcome: "failed",
    reason,
  }));
  server.on("GET /tables/shop/prices/rounds", {
    ...answers.orders_rounds,
    rounds: [...failed, ...answers.orders_rounds.rounds],
  });
  show();
  const list = await screen.findByRole("table", { name: "Rounds, the newest first" });
  const row = within(list).getByRole("rowheader", { name: "13 to 15" }).closest("tr");
  const said = within(row!).getByText("failed 3 times with the same reason");
  expect(said).toHaveClass("wraps"); // a phone must not cut it
  expect(row).toHaveClass("row-picked"); // the newest round is the selected one
  expect(within(list).getAllByText("AlreadyExists: a file is in the way")).toHaveLength(1);
  await userEvent.click(
    within(list).getByRole("button", { name: "Show each of the rounds 13 to 15" }),
  );
  expect(within(list).getByRole("rowheader", { name: "14" })).toBeInTheDocument();
  expect(within(list).getAllByText("AlreadyExists: a file is in the way")).toHaveLength(1);
  await userEvent.click(within(list).getByRole("button", { name: "More about Round 14" }));
  expect(within(list).getByText(/rename it/)).toBeInTheDocument();
});
