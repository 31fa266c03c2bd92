import { startServer, type PageServer } from "../testing/pageServer";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ReactNode } from "react";
import { beforeEach, expect, test } from "vitest";
import { overviewOf, tableOf } from "../testing/samples";
import { ActionButton, ActionsProvider, TableActions } from "./Actions";
import { actionsFor, wordsOf } from "./actionTexts";

let server: PageServer;

beforeEach(() => {
  server = startServer().on("GET /overview", overviewOf());
});

function show(children: ReactNode) {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <QueryClientProvider client={queries}>
      <ActionsProvider>{children}</ActionsProvider>
    </QueryClientProvider>,
  );
}

async function enabled(name: string): Promise<HTMLElement> {
  const button = screen.getByRole("button", { name });
  await waitFor(() => expect(button).toHaveAttribute("aria-disabled", "false"));
  return button;
}

test("a confirmed pause is sent with the page's header, answered and shown", async () => {
  server.on("POST /tables/shop/orders/pause", {
    message: "table shop.orders: paused",
    changed_ms: 1795,
  });
  show(<TableActions table={tableOf()} />);

  await userEvent.click(await enabled("Pause: shop.orders"));
  const dialog = screen.getByRole("dialog", { name: "Pause shop.orders?" });
  expect(dialog).toHaveTextContent("a round of sluice tier continues");
  expect(server.requests("POST /tables/shop/orders/pause")).toHaveLength(0);
  const looked = server.requests("GET /overview").length;
  await userEvent.click(within(dialog).getByRole("button", { name: "Pause" }));

  await waitFor(() =>
    expect(screen.getByRole("status")).toHaveTextContent("table shop.orders: paused"),
  );
  const [sent] = server.requests("POST /tables/shop/orders/pause");
  expect(sent!.headers.get("X-Sluice-Page")).toBe("1");
  expect(screen.queryByRole("dialog")).not.toBeInTheDocument();
  await waitFor(() => expect(server.requests("GET /overview").length).toBeGreaterThan(looked));
  expect(sent!.headers.get("X-Sluice-Changed")).toBeNull();
  const after = server.requests("GET /overview").at(-1)!;
  expect(after.headers.get("X-Sluice-Changed")).toBe("shop.orders@1795");
});

test("Escape and Cancel send nothing", async () => {
  show(<TableActions table={tableOf()} />);
  await userEvent.click(await enabled("Tier now: shop.orders"));
  await userEvent.click(screen.getByRole("button", { name: "Cancel" }));
  expect(screen.queryByRole("dialog")).not.toBeInTheDocument();

  await userEvent.click(await enabled("Tier now: shop.orders"));
  const dialog = screen.getByRole("dialog");
  dialog.dispatchEvent(new Event("cancel", { cancelable: true })); // a browser's Escape
  await waitFor(() => expect(screen.queryByRole("dialog")).not.toBeInTheDocument());
  expect(server.seen.filter((each) => each.method === "POST")).toHaveLength(0);
});

test("while the server works, the dialog says so and cannot send again", async () => {
  let answer!: (reply: { json: object }) => void;
  server.on("POST /tables/shop/orders/tier", () => new Promise((resolve) => (answer = resolve)));
  show(<TableActions table={tableOf()} />);
  await userEvent.click(await enabled("Tier now: shop.orders"));
  await userEvent.click(screen.getByRole("button", { name: "Request a round" }));

  const busy = await screen.findByRole("button", { name: "Requesting a round…" });
  await userEvent.click(busy);
  screen.getByRole("dialog").dispatchEvent(new Event("cancel", { cancelable: true }));
  expect(screen.getByRole("dialog")).toBeInTheDocument();
  expect(server.requests("POST /tables/shop/orders/tier")).toHaveLength(1);
  answer({ json: { message: "table shop.orders: a run is started", url: "/dags/tier/runs/7" } });

  const link = await screen.findByRole("link", { name: "Open the run" });
  expect(link).toHaveAttribute("href", "/dags/tier/runs/7");
});

test.each([
  ["run", 0, /frees nothing, because others hold them, too.*A round that still reads them fails/],
  ["reader", 25_000, /that frees 25 kB\. A reader that still uses the lease fails/],
] as const)(
  "the drop of the lease of a %s says what it does",
  async (holderKind, freedBytes, says) => {
    show(<ActionButton action={{ kind: "drop", leaseId: "job-7", holderKind, freedBytes }} />);
    await userEvent.click(await enabled("Drop lease: job-7"));
    expect(screen.getByRole("dialog")).toHaveTextContent(says);
  },
);

test("an error shows the server's message whole, and may be tried again", async () => {
  const message = "LeaseNotExist: no lease job-7\nlist them with `sluice leases list`";
  server.on("POST /leases/drop", () => ({
    status: 404,
    json: { error: "LeaseNotExist", message },
  }));
  show(<ActionButton action={{ kind: "drop", leaseId: "job-7" }} />);
  await userEvent.click(await enabled("Drop lease: job-7"));
  const dialog = screen.getByRole("dialog", { name: "Drop the lease job-7?" });
  await userEvent.click(within(dialog).getByRole("button", { name: "Drop lease" }));

  await waitFor(() => expect(screen.getByRole("alert")).toHaveTextContent("LeaseNotExist"));
  const told = within(screen.getByRole("alert")).getByText(/no lease job-7/);
  expect(told.textContent).toBe(message.replaceAll("`", ""));
  expect(within(told).getByText("sluice leases list").tagName).toBe("CODE");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(screen.getByRole("dialog", { name: "Drop the lease job-7?" })).toBeInTheDocument();
});

test("a dialog says that the DAG is paused, and what that means", async () => {
  const dag = { dag_id: "lake", url: "/dags/lake", is_paused: true };
  server.on("GET /overview", overviewOf({ dag, tier_now: "run" }));
  show(<ActionButton action={{ kind: "tier", table: tableOf() }} />);
  await userEvent.click(await enabled("Tier now: shop.orders"));
  expect(screen.getByRole("dialog")).toHaveTextContent(
    "The DAG lake is paused: the run stays queued until somebody unpauses the DAG in Airflow.",
  );
  const request = { tier_now: "request" as const, is_fluss: false, dag };
  for (const kind of ["tier", "retry", "resume", "compact"] as const)
    expect(wordsOf({ kind, table: tableOf() }, request).says.at(-1)).toBe(
      "The DAG lake is paused: it starts no run until somebody unpauses it in Airflow.",
    );
  const says = (action: Parameters<typeof wordsOf>[0], is_paused: boolean) =>
    wordsOf(action, { ...request, dag: { ...dag, is_paused } }).says.join(" ");
  expect(says({ kind: "pause", table: tableOf() }, true)).not.toContain("The DAG lake");
  expect(says({ kind: "tier", table: tableOf() }, false)).not.toContain("The DAG lake");
});

test("a viewer reads why they may not act", async () => {
  server.on("GET /overview", overviewOf({ may_act: false, why_not: "needs edit on the DAG" }));
  show(<TableActions table={tableOf()} />);
  const button = screen.getByRole("button", { name: "Pause: shop.orders" });
  await waitFor(() => expect(button).toHaveAccessibleDescription("needs edit on the DAG"));
  expect(button).toHaveAttribute("aria-disabled", "true");
  await userEvent.click(button);
  expect(screen.queryByRole("dialog")).not.toBeInTheDocument();
});

test("who may not start a run reads why, and may do the rest", async () => {
  const why_not_tier_now = "your role may not trigger runs of DAG lake";
  server.on("GET /overview", overviewOf({ may_tier_now: false, why_not_tier_now }));
  show(<TableActions table={tableOf()} />);
  await enabled("Pause: shop.orders");
  const button = screen.getByRole("button", { name: "Tier now: shop.orders" });
  expect(button).toHaveAttribute("aria-disabled", "true");
  expect(button).toHaveAccessibleDescription(why_not_tier_now);
  await userEvent.click(button);
  expect(screen.queryByRole("dialog")).not.toBeInTheDocument();
});

test("a table of another DAG says why it is not acted on here", async () => {
  const why_not_act = "DAG sales does not tier table shop.orders, but sales.*";
  show(<TableActions table={tableOf({ why_not_act, failures: 1 })} />);
  await waitFor(() => expect(server.requests("GET /overview")).toHaveLength(1));
  for (const label of ["Retry", "Tier now", "Pause"]) {
    const button = screen.getByRole("button", { name: `${label}: shop.orders` });
    await waitFor(() => expect(button).toHaveAccessibleDescription(why_not_act));
    expect(button).toHaveAttribute("aria-disabled", "true");
    expect(button).not.toHaveClass("primary");
  }
});

test("a table has the actions that change something", () => {
  expect(actionsFor(tableOf())).toEqual(["tier", "pause"]);
  expect(actionsFor(tableOf({ failures: 2 }))).toEqual(["retry", "tier", "pause"]);
  expect(actionsFor(tableOf({ paused: true, failures: 1 }))).toEqual(["resume", "tier", "retry"]);
});

test("the words follow the cluster and the table's state", () => {
  const fluss = { tier_now: "request", is_fluss: true } as const;
  const run = { tier_now: "run", is_fluss: false } as const;
  const says = (...given: Parameters<typeof wordsOf>) => wordsOf(...given).says.join(" ");
  expect(says({ kind: "pause", table: tableOf() }, fluss)).toContain("only Sluice's rounds");
  expect(says({ kind: "tier", table: tableOf() }, run)).toContain("A run of the DAG tiers");
  const tiering = tableOf({ status: "Tiering" });
  expect(says({ kind: "tier", table: tiering }, fluss)).toContain("refuses the request");
  expect(says({ kind: "tier", table: tiering }, run)).toContain("The requested one follows it");
  expect(says({ kind: "tier", table: tableOf({ paused: true }) }, run)).toContain("stays paused");
  const failing = tableOf({ failures: 3 });
  expect(says({ kind: "retry", table: failing }, run)).toContain("The 3 failures of the table");
});

test("a failure stays, however many actions succeed after it", async () => {
  server.on("POST /tables/shop/orders/tier", () => ({
    status: 502,
    json: { error: "NetworkError", message: "the cluster is gone" },
  }));
  server.on("POST /tables/shop/orders/pause", { message: "table shop.orders: paused" });
  show(<TableActions table={tableOf()} />);
  const act = async (label: string, confirm: string) => {
    await userEvent.click(await enabled(`${label}: shop.orders`));
    await userEvent.click(
      within(screen.getByRole("dialog")).getByRole("button", { name: confirm }),
    );
    await waitFor(() => expect(screen.queryByRole("dialog")).not.toBeInTheDocument());
  };
  await act("Tier now", "Request a round");
  for (let i = 0; i < 5; i++) await act("Pause", "Pause");
  expect(screen.getByRole("alert")).toHaveTextContent("the cluster is gone");
  expect(within(screen.getByRole("status")).getAllByText(/paused/)).toHaveLength(3);
});
