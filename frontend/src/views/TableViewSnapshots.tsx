/** The lake snapshots that rounds of a table committed. */
import { useQuery } from "@tanstack/react-query";
import { api, dataOf, type Schemas } from "../api/client";
import { bytes, count } from "../format";
import { NotAgain, Old } from "../parts/Old";
import { Ago } from "../parts/Times";
import type { SectionProps } from "./TableView";
import { Grid, type Column } from "./TableViewGrid";
import { Failed, Nothing, Skeleton } from "./TableViewStates";

type Snapshot = Schemas["LakeSnapshot"];

export function Snapshots({ database, table, details }: SectionProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ["table", database, table, "snapshots"],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}/snapshots", {
          params: { path: { database, table } },
        }),
      ),
    refetchInterval: 10_000,
  });
  if (!data) {
    if (error) return <Failed what="The snapshots" error={error} onRetry={() => void refetch()} />;
    return <Skeleton what="the lake snapshots" />;
  }
  const isListed = data.snapshots.some((each) => each.is_registered);
  return (
    <>
      <NotAgain error={error} what="The lake snapshots" />
      {!details.old && <Old old={data.old} what="The lake snapshots" />}
      <p className="quiet">
        {data.registered_snapshot_id ? (
          <>
            Fluss names snapshot <code>{data.registered_snapshot_id}</code>
            {isListed ? "." : ", which no recorded round committed."}{" "}
          </>
        ) : (
          "Fluss names no lake snapshot of this table. "
        )}
        {data.note}
      </p>
      {data.snapshots.length === 0 ? (
        <Nothing title="No recorded round committed a lake snapshot" />
      ) : (
        <Grid
          caption="Lake snapshots, the newest first"
          columns={columnsOf(data.snapshots)}
          rows={data.snapshots}
          keyOf={(each) => `${each.lake_snapshot_id}/${each.round_number ?? ""}`}
          classOf={(each) => (each.is_registered ? "row-picked" : undefined)}
        />
      )}
    </>
  );
}

type Total = "lake_rows" | "lake_files" | "lake_bytes" | "keys_deleted";

function columnsOf(all: Snapshot[]): Column<Snapshot>[] {
  const has = (field: Total) => all.some((each) => Boolean(each[field]));
  const number = (
    field: Total | "rows_written" | "files_written" | "bytes_written",
    head: string,
    words = count,
  ): Column<Snapshot> => ({
    key: field,
    head,
    isNumber: true,
    cell: (each) => (each[field] == null ? null : words(each[field])),
  });
  return [
    {
      key: "snapshot",
      head: "Snapshot",
      isName: true,
      cell: (each) => (
        <>
          {each.url ? (
            <a href={each.url}>
              <code>{each.lake_snapshot_id}</code>
            </a>
          ) : (
            <code>{each.lake_snapshot_id}</code>
          )}
          {each.is_registered && <span className="hint good">registered in Fluss</span>}
        </>
      ),
    },
    {
      key: "committed",
      head: "Committed",
      cell: (each) => (each.committed_ms ? <Ago ms={each.committed_ms} /> : null),
    },
    {
      key: "round",
      head: "Round",
      isNumber: true,
      cell: (each) => (each.round_number == null ? null : count(each.round_number)),
    },
    number("rows_written", "Rows written"),
    ...(has("keys_deleted") ? [number("keys_deleted", "Keys deleted")] : []),
    number("files_written", "Files"),
    number("bytes_written", "Bytes", bytes),
    ...(has("lake_rows") ? [number("lake_rows", "Rows in the lake")] : []),
    ...(has("lake_files") ? [number("lake_files", "Files in the lake")] : []),
    ...(has("lake_bytes") ? [number("lake_bytes", "Size in the lake", bytes)] : []),
  ];
}
