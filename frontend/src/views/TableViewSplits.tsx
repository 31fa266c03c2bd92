/** The buckets of a table: what the next round would copy of each. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, dataOf, type Schemas } from "../api/client";
import { count, counted } from "../format";
import type { SectionProps } from "./TableView";
import { useAddress } from "./TableViewAddress";
import { Grid, type Column } from "./TableViewGrid";
import { Failed, Nothing, Skeleton } from "./TableViewStates";

type Split = Schemas["Split"];

/** The most that one answer has: the filter looks at these. */
const READ_ROWS = 1_000;
const PAGE_ROWS = 100;

export function Splits({ database, table, details }: SectionProps) {
  const [params, change] = useAddress();
  const page = Math.max(Number.parseInt(params.get("page") ?? "1", 10) || 1, 1);
  const first = (page - 1) * PAGE_ROWS;
  const offset = Math.floor(first / READ_ROWS) * READ_ROWS;
  const { data, error, refetch } = useQuery({
    queryKey: ["table", database, table, "splits", offset],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}/splits", {
          params: { path: { database, table }, query: { offset, limit: READ_ROWS } },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  if (!data) {
    if (error) return <Failed what="The splits" error={error} onRetry={() => void refetch()} />;
    return <Skeleton what="the splits" />;
  }
  if (data.total === 0) {
    return (
      <Nothing title="This table has no bucket yet">
        <p>It is partitioned, and no partition was created.</p>
      </Nothing>
    );
  }
  const text = params.get("filter") ?? "";
  const onlyLag = params.get("behind") === "1";
  const matching = data.splits.filter((each) => matches(each, text, onlyLag));
  const isFiltered = text !== "" || onlyLag;
  const order = data.is_by_lag ? "the largest lag first" : "the newest partition first";
  const shown = matching.slice(first - data.offset, first - data.offset + PAGE_ROWS);
  const matched = isFiltered ? matching.length : data.total;
  return (
    <>
      <div className="filters">
        <label>
          <span>Filter</span>
          <input
            type="search"
            value={text}
            placeholder={details.partition_keys.length > 0 ? "partition or bucket" : "bucket"}
            onChange={(event) => change({ filter: event.target.value, page: null })}
          />
        </label>
        <label className="check">
          <input
            type="checkbox"
            checked={onlyLag}
            onChange={(event) => change({ behind: event.target.checked ? "1" : null, page: null })}
          />
          <span>Only with lag</span>
        </label>
        <p className="quiet" role="status">
          {isFiltered
            ? `${count(matched)} of ${counted(Math.min(data.total, READ_ROWS), "split")}`
            : counted(data.total, "split")}
          , {order}
          {isFiltered && data.total > READ_ROWS
            ? `; the filter looks at ${count(data.splits.length)} of ${count(data.total)}`
            : ""}
        </p>
      </div>
      {shown.length === 0 ? (
        <Nothing title="No split matches">
          <button
            type="button"
            className="button"
            onClick={() => change({ filter: null, behind: null, page: null })}
          >
            Show all splits
          </button>
        </Nothing>
      ) : (
        <Grid
          caption={`Splits, ${order}`}
          columns={columnsOf(details.partition_keys.length > 0, data.splits)}
          rows={shown}
          keyOf={(each) => `${each.partition ?? ""}/${each.bucket}`}
        />
      )}
      <Pages
        page={page}
        total={matched}
        onPage={(to) => change({ page: to > 1 ? `${to}` : null })}
      />
    </>
  );
}

/** By a part of the partition's name, or by the number of the bucket. */
function matches(split: Split, text: string, onlyLag: boolean): boolean {
  if (onlyLag && !split.lag_rows) return false;
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return true;
  return String(split.bucket) === wanted || (split.partition ?? "").toLowerCase().includes(wanted);
}

function columnsOf(isPartitioned: boolean, all: Split[]): Column<Split>[] {
  const most = Math.max(...all.map((each) => each.lag_rows ?? 0), 1);
  const columns: Column<Split>[] = [
    { key: "bucket", head: "Bucket", isName: true, cell: (each) => `bucket ${each.bucket}` },
    {
      key: "lag",
      head: "Lag in rows",
      isNumber: true,
      cell: (each) => (each.lag_rows == null ? null : <Lag lagRows={each.lag_rows} most={most} />),
    },
    {
      key: "tiered",
      head: "End in the lake",
      hint: "The offset up to which the lake has the rows",
      isNumber: true,
      cell: (each) =>
        each.tiered_offset == null ? (
          <span className="quiet">never tiered</span>
        ) : (
          count(each.tiered_offset)
        ),
    },
    {
      key: "end",
      head: "End of the log",
      isNumber: true,
      cell: (each) => (each.end_offset == null ? null : count(each.end_offset)),
    },
  ];
  if (isPartitioned) {
    columns.unshift({
      key: "partition",
      head: "Partition",
      cell: (each) => each.partition ?? null,
    });
  }
  return columns;
}

function Lag({ lagRows, most }: { lagRows: number; most: number }) {
  return (
    <span className="lag-cell">
      <span className={lagRows > 0 ? "lag-bar" : undefined} aria-hidden="true">
        <span style={{ width: `${(lagRows / most) * 100}%` }} />
      </span>
      {count(lagRows)}
    </span>
  );
}

interface PagesProps {
  page: number;
  total: number;
  onPage: (page: number) => void;
  rows?: number;
}

export function Pages({ page, total, onPage, rows = PAGE_ROWS }: PagesProps) {
  const last = Math.max(Math.ceil(total / rows), 1);
  if (last === 1) return null;
  return (
    <nav className="pages" aria-label="Pages">
      <button
        type="button"
        className="button"
        disabled={page <= 1}
        onClick={() => onPage(page - 1)}
      >
        Previous
      </button>
      <span>
        Page {count(page)} of {count(last)}
      </span>
      <button
        type="button"
        className="button"
        disabled={page >= last}
        onClick={() => onPage(page + 1)}
      >
        Next
      </button>
    </nav>
  );
}
