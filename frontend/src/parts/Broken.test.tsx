import { render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Broken } from "./Broken";

function Fails(): never {
  throw new Error("Failed to fetch dynamically imported module");
}

test("a view that fails leaves the rest of the page, and offers to reload", () => {
  vi.spyOn(console, "error").mockImplementation(() => {}); // React reports what it caught
  render(
    <>
      <p>head</p>
      <Broken>
        <Fails />
      </Broken>
    </>,
  );
  expect(screen.getByText("head")).toBeVisible();
  expect(screen.getByRole("alert")).toHaveTextContent("This view could not be shown");
  expect(screen.getByRole("button", { name: "Reload the page" })).toBeVisible();
});
