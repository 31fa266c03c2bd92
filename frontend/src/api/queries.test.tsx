import { startServer, type Seen } from "../testing/pageServer";
import { renderHook, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { Page } from "../testing/Page";
import { overviewOf, tableOf } from "../testing/samples";
import { NO_FILTERS } from "../views/tables/filters";
import { PAGE_ROWS, useTablePages } from "./queries";

/** Answers as a server whose table 49 moved to the next page after the first one was read. */
function serve(hasMoved: () => boolean): void {
  startServer().on("GET /tables", ({ query }: Seen) => {
    const offset = Number(query.get("offset"));
    const tables = Array.from({ length: PAGE_ROWS }, (_, i) => {
      const n = offset + i === PAGE_ROWS && hasMoved() ? PAGE_ROWS - 1 : offset + i;
      return tableOf({ path: `shop.t${n}` });
    });
    const { reading } = overviewOf();
    return {
      json: { reading, total: 100, matched: 100, offset, are_rounds_read: true, tables },
    };
  });
}

test("a table on two pages is shown once, until both are read again", async () => {
  let asked = 0;
  serve(() => asked++ < 1);
  const pages = [0, 1];
  const { result } = renderHook(() => useTablePages(NO_FILTERS, pages), { wrapper: Page });
  await waitFor(() => expect(result.current.at(51)?.path).toBe("shop.t51"));
  const paths = () => Array.from({ length: 100 }, (_, i) => result.current.at(i)?.path);
  expect(paths().filter((path) => path === "shop.t49")).toHaveLength(1);
  await waitFor(() => expect(new Set(paths()).size).toBe(100), { timeout: 3_000 });
  expect(result.current.at(50)?.path).toBe("shop.t50");
});
