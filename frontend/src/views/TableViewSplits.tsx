/** The buckets of a table: what the next round would copy of each. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { api, dataOf, type Schemas } from "../api/client";
import { count, counted } from "../format";
import { NotAgain, Old } from "../parts/Old";
import { SearchBox } from "../parts/SearchBox";
import { Ago } from "../parts/Times";
import type { SectionProps } from "./TableView";
import { useAddress } from "./TableViewAddress";
import { Grid, type Column } from "./TableViewGrid";
import { Failed, Nothing, Skeleton } from "./TableViewStates";

type Split = Schemas["Split"];

/** Most splits of one answer: a table that is ordered by lag seldom has more. */
const READ_ROWS = 1_000;
const REFRESH_MS = 15_000;

export function Splits({ database, table, details }: SectionProps) {
  const [params, change] = useAddress();
  const query = useInfiniteQuery({
    queryKey: ["table", database, table, "splits"],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}/splits", {
          params: { path: { database, table }, query: { offset: pageParam, limit: READ_ROWS } },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (last) => {
      const next = last.offset + last.splits.length; // an answer may have fewer than asked for
      return last.splits.length > 0 && next < last.total ? next : undefined;
    },
    refetchInterval: REFRESH_MS,
  });
  const { data, error, refetch } = query;
  if (!data) {
    if (error) return <Failed what="The splits" error={error} onRetry={() => void refetch()} />;
    return <Skeleton what="the splits" />;
  }
  const newest = data.pages.at(-1)!;
  if (newest.total === 0) {
    return (
      <Nothing title="This table has no bucket yet">
        <p>It is partitioned, and no partition was created.</p>
      </Nothing>
    );
  }
  const isPartitioned = details.partition_keys.length > 0;
  const text = params.get("filter") ?? "";
  const onlyLag = params.get("behind") === "1";
  // The order by lag changes between two pages: a split may be on both.
  const byName = new Map(
    data.pages.flatMap((each) => each.splits).map((one) => [nameOf(one), one]),
  );
  const read = [...byName.values()];
  const shown = read.filter((each) => matches(each, text, onlyLag));
  const order =
    newest.is_by_lag === false
      ? isPartitioned
        ? "the newest partition first"
        : "by bucket"
      : "the largest lag first";
  const readMs = data.pages[0]!.old?.read_ms ?? data.pages[0]!.now_ms;
  return (
    <>
      {!details.old && <Old old={data.pages[0]!.old} what="The splits" />}
      <div className="filters">
        <SearchBox
          value={text}
          label={isPartitioned ? "Search partitions and buckets" : "Search buckets"}
          onSearch={(filter) => change({ filter })}
        />
        <label>
          <input
            type="checkbox"
            checked={onlyLag}
            onChange={(event) => change({ behind: event.target.checked ? "1" : null })}
          />
          <span>Only with lag</span>
        </label>
        <p className="quiet" role="status">
          {shown.length < read.length ? `${count(shown.length)} of ` : ""}
          {counted(read.length, "split")}
          {read.length < newest.total ? ` read, ${count(newest.total)} in all` : ""}, {order}; read{" "}
          <Ago ms={readMs} />
        </p>
      </div>
      {shown.length === 0 ? (
        <Nothing title="No split matches">
          <button
            type="button"
            className="button"
            onClick={() => change({ filter: null, behind: null })}
          >
            Show all splits
          </button>
        </Nothing>
      ) : (
        <Grid
          caption={`Splits, ${order}`}
          columns={columnsOf(isPartitioned, read)}
          rows={shown}
          keyOf={nameOf}
        />
      )}
      <NotAgain error={error} what="The splits" />
      {query.hasNextPage && (
        <button
          type="button"
          className="button more-button"
          aria-busy={query.isFetchingNextPage}
          onClick={() => void query.fetchNextPage()}
        >
          {query.isFetchingNextPage ? "Reading…" : "Read more splits"}
        </button>
      )}
    </>
  );
}

function nameOf(split: Split): string {
  return `${split.partition ?? ""}/${split.bucket}`;
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
    { key: "bucket", head: "Bucket", isName: true, prefix: "Bucket", cell: (each) => each.bucket },
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
