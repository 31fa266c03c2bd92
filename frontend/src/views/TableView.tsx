/** One table: is it well, why not, what did its rounds do, and what may be done about it. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, ApiError, dataOf, type Schemas } from "../api/client";
import { REFRESH_MS } from "../api/queries";
import { TableActions } from "../parts/Actions";
import { NotAgain, Old } from "../parts/Old";
import { tableAddress, useAddress } from "./TableViewAddress";
import { Definition } from "./TableViewDefinition";
import { Head } from "./TableViewHead";
import { TableLeases } from "./TableViewLeases";
import { RoundsSection } from "./TableViewRounds";
import { Snapshots } from "./TableViewSnapshots";
import { Splits } from "./TableViewSplits";
import { Failed, Nothing, Skeleton } from "./TableViewStates";
import "./TableView.css";

const SECTIONS = [
  { key: "rounds", title: "Rounds", View: RoundsSection },
  { key: "splits", title: "Splits", View: Splits },
  { key: "snapshots", title: "Lake snapshots", View: Snapshots },
  { key: "leases", title: "Leases", View: TableLeases },
  { key: "definition", title: "Definition", View: Definition },
] as const;

interface Props {
  database: string;
  table: string;
}

/** What each section gets. */
export interface SectionProps extends Props {
  details: Schemas["TableDetails"];
}

export function TableView({ database, table }: Props) {
  const path = `${database}.${table}`;
  const { data, error, isPlaceholderData, refetch } = useQuery({
    queryKey: ["table", database, table],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}", { params: { path: { database, table } } }),
      ),
    refetchInterval: REFRESH_MS,
    placeholderData: keepPreviousData,
  });

  const details = isPlaceholderData ? undefined : data;
  return (
    <article className="table-view">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link href="/">Tables</Link>
        <span aria-hidden="true"> / </span>
        <span aria-current="page">{path}</span>
      </nav>
      {details ? (
        <>
          <NotAgain error={error} what="The table" />
          <Old old={details.old} what="The table" />
          <Head
            details={details}
            actions={details.is_tiered === false ? null : <TableActions table={details.table} />}
          />
          <Sections database={database} table={table} details={details} />
        </>
      ) : error ? (
        isMissing(error) ? (
          <Missing path={path} message={error.message} onRetry={() => void refetch()} />
        ) : (
          <>
            <h1>{path}</h1>
            <Failed what="The table" error={error} onRetry={() => void refetch()} />
          </>
        )
      ) : (
        <>
          <h1>{path}</h1>
          <Skeleton what={`table ${path}`} lines={8} />
        </>
      )}
    </article>
  );
}

function isMissing(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404;
}

interface MissingProps {
  path: string;
  message: string;
  onRetry: () => void;
}

function Missing({ path, message, onRetry }: MissingProps) {
  return (
    <>
      <h1>{path}</h1>
      <Nothing title="There is no such lake table">
        <p className="whole">{message}</p>
        <p>
          It may have been dropped. <Link href="/">See all tables</Link>, or{" "}
          <Link href={`/?search=${encodeURIComponent(path)}`}>search for its name</Link>.
        </p>
        <button type="button" className="button" onClick={onRetry}>
          Read again
        </button>
      </Nothing>
    </>
  );
}

function Sections(props: SectionProps) {
  const [params] = useAddress();
  const shown = SECTIONS.find((each) => each.key === params.get("section")) ?? SECTIONS[0];
  return (
    <>
      <nav className="tabs" aria-label="Sections of the table">
        {SECTIONS.map(({ key, title }) => (
          <Link
            key={key}
            href={tableAddress(props.details.table.path, key === "rounds" ? undefined : key)}
            aria-current={key === shown.key ? "page" : undefined}
          >
            {title}
          </Link>
        ))}
      </nav>
      <section aria-label={shown.title} className="section">
        <shown.View {...props} />
      </section>
    </>
  );
}
