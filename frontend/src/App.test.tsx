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
