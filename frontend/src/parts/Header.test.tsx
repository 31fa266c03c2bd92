import { startServer } from "../testing/pageServer";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { Page } from "../testing/Page";
import { overviewOf } from "../testing/samples";
import { Header } from "./Header";

test("the page of another DAG is opened as by a link, which leaves a frame", async () => {
  const pages = [
    { name: "tiering", url: "/dags/tiering/plugin/lake", is_this: true },
    { name: "other", url: "/dags/other/plugin/lake", is_this: false },
  ];
  const overview = overviewOf({ pages });
  const server = startServer().on("GET /overview", overview);
  render(
    <Page>
      <Header overview={overview} isCutOff={false} />
    </Page>,
  );
  const followed: (string | null)[] = [];
  const note = (event: MouseEvent) => {
    event.preventDefault();
    followed.push((event.target as Element).getAttribute("href"));
  };
  document.addEventListener("click", note);
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Page of" }), "other");
  document.removeEventListener("click", note);
  expect(followed).toContain("/dags/other/plugin/lake");
  await waitFor(() => expect(server.requests("GET /overview")).toHaveLength(1));
});

test.each([
  [false, "`sluice ui --read-only` shows the page only", /^Read-only: sluice ui --read-only shows/],
  [false, null, /^Read-only: You may only look at this page\.$/],
  [true, null, null],
])("who may not act (%s) sees a badge that says why: %s", (may_act, why_not, text) => {
  const overview = overviewOf({ may_act, why_not });
  startServer().on("GET /overview", overview);
  render(
    <Page>
      <Header overview={overview} isCutOff={false} />
    </Page>,
  );
  const badge = screen.queryByText(/^Read-only/);
  if (text === null) expect(badge).toBeNull();
  else {
    expect(badge).toHaveTextContent(text);
    expect(badge?.title).toBe(badge?.textContent?.replace("Read-only: ", ""));
  }
});

test.each([
  [{ lags_unread: 0 }, /^read [^,]* ago$/],
  [{ lags_unread: 1 }, /^read .* ago, without 1 lag$/],
  [{ lags_unread: 1200 }, /^read .* ago, without 1,200 lags$/],
])("how many lags cannot be read is said beside the age: %j", (more, text) => {
  const overview = overviewOf({});
  startServer().on("GET /overview", overview);
  render(
    <Page>
      <Header
        overview={{ ...overview, reading: { ...overview.reading, ...more } }}
        isCutOff={false}
      />
    </Page>,
  );
  expect(screen.getByText(text)).toBeVisible();
});
