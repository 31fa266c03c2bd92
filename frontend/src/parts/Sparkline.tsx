/** The last rounds of a table as bars: their height is rows, and a failed round is a red cross. */
import type { Table } from "../api/client";
import { counted } from "../format";
import { roundsInWords } from "./words";

const SHOWN_MAX = 20;
const BAR = 5;
const GAP = 2;
const HEIGHT = 22;
/** The height of a round without rows. */
const IDLE = 3;
const WIDTH = SHOWN_MAX * (BAR + GAP) - GAP;

type Points = NonNullable<Table["rounds_shown"]>;

export function Sparkline({ points }: { points: Points | undefined }) {
  const shown = (points ?? []).slice(-SHOWN_MAX);
  const words = roundsInWords(shown);
  if (shown.length === 0)
    return (
      <span className="quiet">
        –<span className="hidden">{words}</span>
      </span>
    );
  const most = Math.max(...shown.map((point) => point.rows_written ?? 0), 1);
  const first = SHOWN_MAX - shown.length; // the newest is always at the right
  return (
    <svg
      className="spark"
      role="img"
      aria-label={words}
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
    >
      <title>{words}</title>
      <line x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className="spark-base" />
      {shown.map((point, i) => {
        const isFailed = point.outcome === "failed";
        const rows = point.rows_written ?? 0;
        // a root, so that small rounds stay visible beside a large one
        const share = Math.sqrt(rows / most);
        const x = (first + i) * (BAR + GAP);
        if (isFailed)
          return (
            <path
              key={i}
              className="spark-failed"
              d={`M${x},${HEIGHT - 2 - BAR}l${BAR},${BAR}m0,${-BAR}l${-BAR},${BAR}`}
            >
              <title>failed</title>
            </path>
          );
        const height = rows === 0 ? IDLE : Math.max(share * (HEIGHT - 2), IDLE + 1);
        return (
          <rect
            key={i}
            className={rows === 0 ? "bar idle" : "bar"}
            x={x}
            y={HEIGHT - 1 - height}
            width={BAR}
            height={height}
            rx="1"
          >
            <title>{rows === 0 ? "no new rows" : counted(rows, "row")}</title>
          </rect>
        );
      })}
    </svg>
  );
}
