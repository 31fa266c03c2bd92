import { expect, test } from "vitest";
import {
  addressOf,
  filtersOf,
  isFiltered,
  NO_FILTERS,
  queryOf,
  sortedBy,
  withHealth,
} from "./filters";

test("an address without filters is empty", () => {
  expect(addressOf(NO_FILTERS)).toBe("");
  expect(filtersOf("")).toEqual(NO_FILTERS);
});

test("an address says all filters, and gives them back", () => {
  const filters = {
    search: "or de",
    health: ["failing" as const, "late" as const],
    database: "shop",
    sort: "lag_rows" as const,
    descending: false,
  };
  const address = addressOf(filters);
  expect(address).toBe(
    "search=or+de&health=failing&health=late&database=shop&sort=lag_rows&order=asc",
  );
  expect(filtersOf(address)).toEqual(filters);
});

test("what an address holds that is not known is left out", () => {
  expect(filtersOf("health=broken&sort=colour&database=")).toEqual(NO_FILTERS);
});

test("the query has what is chosen, and the page that is asked for", () => {
  expect(queryOf(NO_FILTERS, 200, 100)).toEqual({
    sort: "table",
    descending: false,
    offset: 200,
    limit: 100,
  });
  const chosen = withHealth({ ...NO_FILTERS, search: "x", database: "shop" }, "late");
  expect(queryOf(chosen, 0, 100)).toMatchObject({
    search: "x",
    database: "shop",
    health: ["late"],
  });
});

test("a state is chosen and given up again", () => {
  const chosen = withHealth(withHealth(NO_FILTERS, "ok"), "failing");
  expect(chosen.health).toEqual(["failing", "ok"]);
  expect(withHealth(chosen, "ok").health).toEqual(["failing"]);
  expect(isFiltered(chosen)).toBe(true);
  expect(isFiltered(sortedBy(NO_FILTERS, "lag"))).toBe(false);
});

test("a header sorts first by what needs a look, then the other way, then by name", () => {
  const first = sortedBy(NO_FILTERS, "lag_rows");
  expect(first).toMatchObject({ sort: "lag_rows", descending: true });
  const second = sortedBy(first, "lag_rows");
  expect(second).toMatchObject({ sort: "lag_rows", descending: false });
  expect(sortedBy(second, "lag_rows")).toMatchObject({ sort: "table", descending: false });
  expect(sortedBy(first, "last_tiered")).toMatchObject({ sort: "last_tiered", descending: false });
});

test("the order is by name, unless a shared address asks for the worst first", () => {
  expect(filtersOf("")).toMatchObject({ sort: "table", descending: false });
  const worst = filtersOf("sort=attention");
  expect(worst).toMatchObject({ sort: "attention", descending: false });
  expect(addressOf(worst)).toBe("sort=attention");
  expect(addressOf(sortedBy(NO_FILTERS, "table"))).toBe("order=desc");
});
