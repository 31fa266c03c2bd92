import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test } from "vitest";
import { Reason } from "./Reason";

const LONG = "AlreadyExists: a file is in the way\n\nrename it\nthen retry the table";

/** The layout of a browser: this many pixels of each part's text are in sight. */
function layOut(seen: number, all: number): void {
  for (const [name, px] of [
    ["clientHeight", seen],
    ["scrollHeight", all],
  ] as const)
    Object.defineProperty(HTMLElement.prototype, name, { configurable: true, value: px });
}

afterEach(() => {
  for (const name of ["clientHeight", "scrollHeight"])
    Reflect.deleteProperty(HTMLElement.prototype, name);
});

test("a reason that fits is whole, without a button that shows more", () => {
  layOut(80, 80);
  render(<Reason text={LONG} of="shop.prices" />);
  expect(screen.getByText(/then retry the table/)).toBeVisible();
  expect(screen.queryByRole("button", { name: /^Show/ })).not.toBeInTheDocument();
  expect(screen.getByRole("button", { name: "Copy the reason: shop.prices" })).toBeVisible();
});

test("what does not fit is shown on a click, and Escape hides it", async () => {
  layOut(80, 200);
  const { container } = render(<Reason text={LONG} of="shop.prices" />);
  const whole = screen.getByRole("button", { name: "Show the whole reason: shop.prices" });
  expect(whole).toHaveAttribute("aria-expanded", "false");
  expect(container.querySelector(".reason-text")).toHaveClass("short");
  await userEvent.click(whole);
  const less = screen.getByRole("button", { name: "Show less: shop.prices" });
  expect(less).toHaveAttribute("aria-expanded", "true");
  expect(container.querySelector(".reason-text")).not.toHaveClass("short");
  await userEvent.keyboard("{Escape}");
  expect(container.querySelector(".reason-text")).toHaveClass("short");
});

test("where the buttons are does not depend on what fits, which would change again with it", () => {
  const line = "Job aborted due to stage failure. ".repeat(10);
  for (const all of [80, 200]) {
    layOut(80, all);
    const { container, unmount } = render(<Reason text={line} of="shop.prices" />);
    expect(container.firstElementChild).toHaveAttribute("class", "reason");
    unmount();
  }
});

test("the first line is a part of its own, which a narrow screen wraps and does not cut", () => {
  layOut(80, 80);
  const { container } = render(<Reason text={LONG} of="shop.prices" />);
  const [first, others] = container.querySelectorAll(".reason-text > span");
  expect(first).toHaveTextContent("AlreadyExists: a file is in the way");
  expect(others?.textContent).toBe("\nrename it\nthen retry the table");
});

test("the innermost cause of a long reason comes first", () => {
  layOut(80, 200);
  const reason = `SparkException: ${"Task failed. ".repeat(20)}java.io.IOException: disk full`;
  const { container } = render(<Reason text={reason} of="shop.prices" />);
  expect(screen.getByText("disk full")).toBeVisible();
  expect(container.firstElementChild).toHaveAttribute("class", "reason with-cause");
  expect(screen.getByText(reason)).toBeInTheDocument();
});
