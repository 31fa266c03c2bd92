import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { Menu } from "./Menu";

test("arrow keys walk through a menu, Escape closes it, and the focus returns", async () => {
  const open = vi.fn();
  const pause = vi.fn();
  render(
    <Menu
      label="Actions of shop.orders"
      button="…"
      note="You may only look."
      items={[
        { label: "Open", onChoose: open },
        { label: "Pause", onChoose: pause, isDisabled: true },
      ]}
    />,
  );
  const opener = screen.getByRole("button", { name: "Actions of shop.orders" });
  expect(opener).toHaveAttribute("aria-expanded", "false");
  await userEvent.click(opener);
  expect(screen.getByRole("menuitem", { name: "Open" })).toHaveFocus();
  await userEvent.keyboard("{ArrowDown}");
  const disabled = screen.getByRole("menuitem", { name: "Pause" });
  expect(disabled).toHaveFocus();
  expect(disabled).toHaveAccessibleDescription("You may only look.");
  await userEvent.keyboard("{Enter}");
  expect(pause).not.toHaveBeenCalled();

  await userEvent.keyboard("{Escape}");
  expect(screen.queryByRole("menu")).not.toBeInTheDocument();
  expect(opener).toHaveFocus();
  await userEvent.keyboard("{Enter}{Enter}");
  expect(open).toHaveBeenCalledOnce();
});
