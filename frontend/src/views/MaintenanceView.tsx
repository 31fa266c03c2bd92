/** What keeps lake tables fast and small: compactions, expired snapshots, and what is due. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, dataOf, type Schemas } from "../api/client";
import { bytes, count, counted } from "../format";
import { Banner } from "../parts/Banner";
import { Ago } from "../parts/Times";
import { tableAddress, useAddress } from "./TableViewAddress";
import { Grid, sortOf, sortText, type Column } from "./TableViewGrid";
import { Pages } from "./TableViewSplits";
import { Failed, Nothing, Skeleton } from "./TableViewStates";
import "./TableView.css";

type Maintained = Schemas["MaintainedTable"];

const PAGE_ROWS = 100;

export function MaintenanceView() {
  const [params, change] = useAddress();
  const page = Math.max(Number.parseInt(params.get("page") ?? "1", 10) || 1, 1);
  const offset = (page - 1) * PAGE_ROWS;
  const { data, error, refetch } = useQuery({
    queryKey: ["maintenance", offset],
    queryFn: () =>
      dataOf(api.GET("/api/v1/maintenance", { params: { query: { offset, limit: PAGE_ROWS } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  return (
    <article className="table-view">
      <div className="table-title">
        <h1>Maintenance</h1>
        {data && <span className="quiet">{counted(data.total, "table")}</span>}
      </div>
      <p className="quiet lead">
        Rounds compact files and expire snapshots in their own commit. <code>sluice maintain</code>{" "}
        and the maintenance DAG do what is left.
      </p>
      {data ? (
        <>
          {error && (
            <Banner kind="warning">The newest state could not be read: {error.message}</Banner>
          )}
          <LastRun data={data} />
          {data.note && <p className="notice whole">{data.note}</p>}
          {data.tables.length === 0 ? (
            <Nothing title="There are no lake tables">
              <p>
                <Link href="/">Tables</Link> says how to make one.
              </p>
            </Nothing>
          ) : (
            <Grid
              caption="Maintenance of tables"
              columns={columnsOf(data.tables)}
              rows={data.tables}
              keyOf={(each) => each.path}
              nameOf={(each) => each.path}
              sort={sortOf(params.get("sort"))}
              onSort={(sort) => change({ sort: sortText(sort) })}
              classOf={(each) => ((each.problems ?? []).length > 0 ? "row-failed" : undefined)}
              more={(each) => <More table={each} />}
            />
          )}
          <Pages
            page={page}
            total={data.total}
            onPage={(to) => change({ page: to > 1 ? `${to}` : null })}
          />
        </>
      ) : error ? (
        <Failed what="The maintenance" error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton what="the maintenance" />
      )}
    </article>
  );
}

function LastRun({ data }: { data: Schemas["Maintenance"] }) {
  if (!data.last_run_ms) {
    return <p className="notice">No run of the maintenance is recorded here.</p>;
  }
  const words = (
    <>
      Last run <Ago ms={data.last_run_ms} />
    </>
  );
  return <p>{data.last_run_url ? <a href={data.last_run_url}>{words}</a> : words}</p>;
}

function columnsOf(all: Maintained[]): Column<Maintained>[] {
  const has = (test: (each: Maintained) => unknown) => all.some((each) => Boolean(test(each)));
  const columns: (Column<Maintained> | false)[] = [
    {
      key: "table",
      head: "Table",
      isName: true,
      sortBy: (each) => each.path,
      cell: (each) => <Link href={tableAddress(each.path)}>{each.path}</Link>,
    },
    {
      key: "needs",
      head: "Needs",
      hint: "Of the last run of the maintenance",
      sortBy: (each) => (each.problems ?? []).length * 100 + (each.needs ?? []).length,
      isNumber: false,
      cell: (each) =>
        (each.needs ?? []).length + (each.problems ?? []).length > 0 ? (
          <Needs table={each} />
        ) : null,
    },
    {
      key: "deletes",
      head: "Deletes as",
      hint: "How the last round that deleted keys did so",
      sortBy: (each) => each.deletes_as,
      cell: (each) => (each.deletes_as ? <Deletes as={each.deletes_as} /> : null),
    },
    {
      key: "compacted",
      head: "Last compaction",
      sortBy: (each) => each.last_compacted_ms,
      cell: (each) => <Compaction table={each} />,
    },
    {
      key: "expired",
      head: "Snapshots expired",
      sortBy: (each) => each.last_expired_ms,
      cell: (each) => <Expired table={each} />,
    },
    has((each) => each.lake_files) && {
      key: "files",
      head: "Files",
      isNumber: true,
      sortBy: (each) => each.lake_files,
      cell: (each) => (each.lake_files == null ? null : count(each.lake_files)),
    },
    has((each) => each.lake_bytes) && {
      key: "size",
      head: "Size",
      isNumber: true,
      sortBy: (each) => each.lake_bytes,
      cell: (each) => (each.lake_bytes == null ? null : bytes(each.lake_bytes)),
    },
  ];
  return columns.filter((each) => each !== false);
}

function Needs({ table }: { table: Maintained }) {
  const needs = table.needs ?? [];
  const problems = table.problems ?? [];
  return (
    <ul className="held">
      {problems.map((each) => (
        <li key={each} className="bad-text">
          {each}
        </li>
      ))}
      {needs.map((each) => (
        <li key={each}>{each}</li>
      ))}
    </ul>
  );
}

/** Equality deletes make scans slow, so they are seen at once. */
export function Deletes({ as }: { as: string }) {
  if (!as.includes("equality")) return as;
  return <span className="hint warn">{as}</span>;
}

function Compaction({ table }: { table: Maintained }) {
  const parts = [
    table.compaction_requested_ms ? (
      <span key="requested" className="hint warn">
        requested <Ago ms={table.compaction_requested_ms} />
      </span>
    ) : null,
    table.last_compacted_ms ? <Ago key="last" ms={table.last_compacted_ms} /> : null,
    table.files_compacted ? (
      <span key="files" className="sub">
        {counted(table.files_compacted, "file")} replaced
      </span>
    ) : null,
  ].filter((each) => each !== null);
  return parts.length > 0 ? <>{parts}</> : <span className="quiet">none recorded</span>;
}

function Expired({ table }: { table: Maintained }) {
  if (!table.last_expired_ms) return <span className="quiet">none recorded</span>;
  return (
    <>
      <Ago ms={table.last_expired_ms} />
      {table.snapshots_expired ? (
        <span className="sub">{counted(table.snapshots_expired, "snapshot")}</span>
      ) : null}
    </>
  );
}

function More({ table }: { table: Maintained }) {
  const facts: [string, string | null | undefined][] = [
    ["Last compaction", table.last_compaction],
    ["Last run of the maintenance", table.line],
  ];
  const known = facts.filter(([, text]) => text);
  if (known.length === 0) return <p className="quiet">Nothing more is recorded of this table.</p>;
  return (
    <dl className="details">
      {known.map(([name, text]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="whole">{text}</dd>
        </div>
      ))}
    </dl>
  );
}
