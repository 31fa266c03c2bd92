import { act, renderHook } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { navigate, pathOf, searchOf, useHashLocation, useHashSearch } from "./location";

beforeEach(() => navigate("/"));

test("path and search are both in the hash", () => {
  expect(pathOf("#/tables/shop/orders?tab=rounds")).toBe("/tables/shop/orders");
  expect(searchOf("#/?health=failing&health=late")).toBe("health=failing&health=late");
  expect(pathOf("")).toBe("/");
  expect(searchOf("#/leases")).toBe("");
});

test("a view follows the hash, and its search alone does not change the path", () => {
  const { result } = renderHook(() => [useHashLocation()[0], useHashSearch()]);
  act(() => navigate("/leases?search=x"));
  expect(result.current).toEqual(["/leases", "search=x"]);
  expect(location.search).toBe("");
  act(() => navigate("/leases"));
  expect(result.current).toEqual(["/leases", ""]);
});

test("to replace adds no step to go back to", () => {
  const before = history.length;
  navigate("/leases", { replace: true });
  expect(history.length).toBe(before);
  expect(location.hash).toBe("#/leases");
});
