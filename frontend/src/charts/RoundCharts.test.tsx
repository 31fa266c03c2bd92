import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import type { Round } from "../api/client";
import { moment } from "../format";
import answers from "../testing/answers.json";
import { RoundCharts } from "./RoundCharts";
import { oldestFirst, phasesOf, sentenceOf } from "./rounds";
import type { XMode } from "./xAxis";

const ORDERS = oldestFirst(answers.orders_rounds.rounds as Round[]);
const STOCK = oldestFirst(answers.stock_rounds.rounds as Round[]);

interface ShownProps {
  rounds: Round[];
  nowMs: number;
  lagRows?: number | null;
}

function Shown({ rounds, nowMs, lagRows }: ShownProps) {
  const [picked, setPicked] = useState(rounds.length - 1);
  const [mode, setMode] = useState<XMode | null>(null);
  const props = { rounds, nowMs, lagRows, mode, onMode: setMode, picked, onPick: setPicked };
  return <RoundCharts {...props} />;
}

const readout = () => screen.getByTestId("readout");

test("arrow keys move one cursor through all charts, and say the round", async () => {
  const { container } = render(<Shown rounds={ORDERS} nowMs={answers.orders_rounds.now_ms} />);
  const slider = screen.getByRole("slider", { name: "Charts of the last 6 rounds" });
  expect(readout()).toHaveTextContent("Round 12 committed ended 42 s ago");
  expect(slider).toHaveAttribute("aria-valuenow", "6");

  await userEvent.tab();
  await userEvent.tab();
  expect(slider).toHaveFocus();
  await userEvent.keyboard("{ArrowLeft}{ArrowLeft}");
  expect(slider).toHaveAttribute("aria-valuenow", "4");
  expect(slider.getAttribute("aria-valuetext")).toMatch(/^Round 10, failed, .* is missing in/);
  expect(readout()).toHaveTextContent("lake table shop.orders is missing in /data/lake");
  const charts = container.querySelectorAll("svg[data-plot]").length;
  expect(container.querySelectorAll("svg[data-plot] line.cursor")).toHaveLength(charts);

  expect(slider.getAttribute("aria-valuetext")).toContain(`ended ${moment(ORDERS[3]!.ended_ms!)}`);

  await userEvent.keyboard("{Home}");
  expect(readout()).toHaveTextContent("Round 7");
  await userEvent.keyboard("{End}");
  expect(readout()).toHaveTextContent("Round 12");
});

test("failed rounds have a mark of their own shape in each chart", () => {
  const { container } = render(<Shown rounds={ORDERS} nowMs={answers.orders_rounds.now_ms} />);
  expect(screen.getByText("2 rounds failed.")).toBeInTheDocument();
  for (const plot of container.querySelectorAll("svg[data-plot]")) {
    expect(plot.querySelectorAll("path.failed-mark")).toHaveLength(2);
  }
});

test("the pictures are said in words", () => {
  render(<Shown rounds={ORDERS} nowMs={answers.orders_rounds.now_ms} />);
  const rows = ORDERS.reduce((sum, each) => sum + (each.rows_written ?? 0), 0);
  const words = rows.toLocaleString("en");
  expect(screen.getByText(new RegExp(`Rows written: ${words} in all`))).toBeInTheDocument();
  expect(screen.getByText(/6 rounds between .*; 2 of them failed/)).toBeInTheDocument();
  const figure = screen.getByText("Seconds by phase").closest("figure")!;
  expect(within(figure).getByText("lake commit")).toBeInTheDocument();
});

test("the horizontal axis is chosen by time or by round", async () => {
  render(<Shown rounds={ORDERS} nowMs={answers.orders_rounds.now_ms} />);
  await userEvent.click(screen.getByRole("radio", { name: "By round" }));
  expect(screen.getByText(/placed by the number of the round/)).toBeInTheDocument();
  await userEvent.click(screen.getByRole("radio", { name: "By time" }));
  expect(screen.getByText(/placed by the time at which rounds ended/)).toBeInTheDocument();
});

test("charts without a value are left out", () => {
  const failed = ORDERS.filter((each) => each.outcome === "failed");
  const { rerender } = render(<Shown rounds={failed} nowMs={answers.orders_rounds.now_ms} />);
  expect(screen.getByText("Seconds by phase")).toBeInTheDocument();
  expect(screen.queryByText("Files written")).not.toBeInTheDocument();
  rerender(<Shown rounds={STOCK} nowMs={answers.stock_rounds.now_ms} />);
  expect(screen.getByText("Keys deleted")).toBeInTheDocument();
});

test("the phases add up to the duration", () => {
  for (const round of [...ORDERS, ...STOCK]) {
    const sum = phasesOf(round).reduce((all, each) => all + each.ms, 0);
    expect(sum).toBeGreaterThanOrEqual(round.duration_ms!);
  }
});

test("a round in words has what it wrote", () => {
  const words = sentenceOf(STOCK.at(-1)!, "3 min ago");
  expect(words).toMatch(/^Round \d+, committed, ended 3 min ago, took .* rows, .* keys deleted/);
});

test("lag and size go on to now, as the status says them", () => {
  const nowMs = answers.stock_rounds.now_ms;
  const sized = STOCK.map((each, i) => ({ ...each, lake_bytes: 900 + i }));
  render(<Shown rounds={sized} nowMs={nowMs} lagRows={5_120} />);
  const lag = screen.getByText("Lag before and after, in rows").closest("figure")!;
  expect(lag).toHaveTextContent("5,120 rows missing now");
  const size = screen.getByText("Size in the lake").closest("figure")!;
  for (const chart of [lag, size]) {
    expect(within(chart).getByText("now")).toBeInTheDocument();
    expect(chart.querySelectorAll("path.to-now")).toHaveLength(1);
  }
  const [line] = size.querySelectorAll("path.to-now");
  const [from, to] = /,([\d.]+)L[\d.]+,([\d.]+)$/.exec(line!.getAttribute("d")!)!.slice(1);
  expect(from).toBe(to); // nothing but rounds changes the size
});

test("a present lag that is not known is not drawn", () => {
  render(<Shown rounds={STOCK} nowMs={answers.stock_rounds.now_ms} lagRows={null} />);
  const lag = screen.getByText("Lag before and after, in rows").closest("figure")!;
  expect(lag).toHaveTextContent(/after the newest round/);
  expect(within(lag).queryByText("now")).not.toBeInTheDocument();
});

test("marks are named: the cursor, and the time that no phase has", () => {
  render(<Shown rounds={ORDERS} nowMs={answers.orders_rounds.now_ms} />);
  expect(screen.getByText("selected round")).toBeInTheDocument();
  expect(screen.getByText("other: start and report")).toBeInTheDocument();
});
