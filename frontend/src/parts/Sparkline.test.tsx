import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { Sparkline } from "./Sparkline";

test("a failed round is a low cross, and a round without rows a mark of its own", () => {
  const { container } = render(
    <Sparkline
      points={[
        { outcome: "committed", rows_written: 900 },
        { outcome: "committed", rows_written: 1 },
        { outcome: "nothing_new", rows_written: 0 },
        { outcome: "failed" },
      ]}
    />,
  );
  const heights = [...container.querySelectorAll("rect")].map((each) =>
    Number(each.getAttribute("height")),
  );
  expect(heights).toHaveLength(3); // the failed round has no bar, that could read as rows
  const [most, one, none] = heights as [number, number, number];
  expect(most).toBeGreaterThan(one);
  expect(one).toBeGreaterThan(none);
  expect(container.querySelector("rect.idle title")).toHaveTextContent("no new rows");
  const [cross, ...others] = container.querySelectorAll("path.spark-failed");
  expect(others).toEqual([]);
  expect(cross).toHaveTextContent("failed");
});
