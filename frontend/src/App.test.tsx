import { startServer, type PageServer } from "./testing/pageServer";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import { App } from "./App";
import { navigate } from "./location";
import { Page } from "./testing/Page";
import { NOW_MS, overviewOf, tableOf } from "./testing/samples";

let server: PageServer;

beforeEach(() => {
  navigate("/");
  server = startServer()
    .on("GET /overview", overviewOf({ attention_total: 0 }))
    .on("GET /tables", {
      reading: overviewOf().reading,
      total: 1,
      matched: 1,
      offset: 0,
      databases: [],
      are_rounds_read: true,
      tables: [tableOf()],
    })
    .on("GET /leases", { now_ms: NOW_MS, is_complete: true, leases: [], total: 0 });
});

const show = () =>
  render(
    <Page>
      <App />
    </Page>,
  );

test("another view begins at its top, with the focus on its heading", async () => {
  const scrolled = vi.spyOn(window, "scrollTo").mockImplementation(() => {});
  show();
  await screen.findByRole("heading", { name: "Nothing is stuck" });
  expect(document.body).toHaveFocus();
  await userEvent.click(screen.getByRole("link", { name: "Leases" }));
  await waitFor(() => expect(screen.getByRole("heading", { name: "Leases" })).toHaveFocus());
  expect(scrolled).toHaveBeenLastCalledWith(0, 0);

  scrolled.mockClear();
  const old = location.href;
  act(() => {
    // as Back does; happy-dom has no history to go back in
    history.replaceState(null, "", "#/");
    dispatchEvent(new HashChangeEvent("hashchange", { oldURL: old, newURL: location.href }));
  });
  await waitFor(() =>
    expect(screen.getByRole("heading", { name: "Nothing is stuck" })).toHaveFocus(),
  );
  expect(scrolled).not.toHaveBeenCalledWith(0, 0);
});

test("the focus follows the heading of a view that loads", async () => {
  let answer: (reply: { status: number; json: object }) => void;
  server.on("GET /tables/shop/orders", () => new Promise((resolve) => (answer = resolve)));
  show();
  await screen.findByRole("heading", { name: "Nothing is stuck" });
  act(() => navigate("/tables/shop/orders"));
  await waitFor(() => expect(screen.getByRole("heading", { name: "shop.orders" })).toHaveFocus());
  const before = document.activeElement;
  answer!({ status: 404, json: { error: "TableNotExist", message: "it is gone" } });
  await screen.findByText("it is gone");
  await waitFor(() => expect(screen.getByRole("heading", { name: "shop.orders" })).toHaveFocus());
  expect(document.activeElement).not.toBe(before);
});

const LOGGED_OUT = {
  status: 401,
  json: { error: "Unauthorized", message: "Not logged in: open the link of `sluice ui`." },
};

test.each([true, false])(
  "a session that is gone is said once, with the command as code (tables were read: %s)",
  async (wasRead) => {
    if (!wasRead) server.on("GET /overview", () => LOGGED_OUT).on("GET /tables", () => LOGGED_OUT);
    show();
    if (wasRead) {
      await screen.findByRole("heading", { name: "Nothing is stuck" });
      server.on("GET /overview", () => LOGGED_OUT).on("GET /tables", () => LOGGED_OUT);
      await userEvent.click(screen.getByRole("button", { name: "Refresh" }));
    }
    const told = await screen.findAllByText("sluice ui");
    expect(told.map((each) => each.tagName)).toEqual(["CODE"]);
    expect(told[0]!.closest("[role=alert]")).toHaveTextContent(
      "Not logged in: open the link of sluice ui.",
    );
    expect(screen.getByRole("button", { name: "Reload the page" })).toBeVisible();
    expect(document.body).not.toHaveTextContent("`");
    if (!wasRead) {
      expect(await screen.findByText("The tables could not be read")).toBeVisible();
      expect(screen.queryByText("Reading the tables")).toBeNull();
    }
  },
);

test("a cluster that never answered is no list that loads", async () => {
  const reading = { ...overviewOf().reading, error: "NetworkError: nothing listens" };
  const unread = { ...reading, read_ms: null, is_complete: false };
  server
    .on("GET /overview", overviewOf({ reading: unread, total: 0 }))
    .on("GET /tables", { reading: unread, total: 0, matched: 0, offset: 0, tables: [] });
  show();
  expect(await screen.findByText("No table was read yet")).toBeVisible();
  expect(screen.getByText("The cluster could not be read.")).toBeVisible();
});
