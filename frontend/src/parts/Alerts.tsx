/** What everybody must know before they trust a view: old data, a paused DAG, an unfinished read. */
import { useQueryClient } from "@tanstack/react-query";
import { ApiError, type Overview } from "../api/client";
import { useNow } from "../clock";
import { count, counted, span } from "../format";
import { Banner } from "./Banner";
import { Commands } from "./Commands";

interface Props {
  overview: Overview | undefined;
  error: Error | null;
}

export function Alerts({ overview, error }: Props) {
  return (
    <>
      {error && <CutOff error={error} overview={overview} />}
      {!error && overview?.reading.error && <Unread overview={overview} />}
      {overview && !overview.reading.is_complete && !overview.reading.error && (
        <Unfinished overview={overview} />
      )}
      {overview?.dag?.is_paused && (
        <Banner kind="warning" action={<a href={overview.dag.url}>Open the DAG</a>}>
          <strong>The DAG {overview.dag.dag_id} is paused.</strong> No run starts, so it tiers no
          table.
        </Banner>
      )}
    </>
  );
}

function CutOff({ error, overview }: { error: Error; overview: Overview | undefined }) {
  const queries = useQueryClient();
  const isLoggedOut = error instanceof ApiError && error.status === 401;
  return (
    <Banner
      kind="error"
      aside={<Old overview={overview} />}
      action={
        <button
          type="button"
          className="button"
          onClick={() => (isLoggedOut ? location.reload() : void queries.invalidateQueries())}
        >
          {isLoggedOut ? "Reload the page" : "Try again"}
        </button>
      }
    >
      <strong>
        <Commands text={error.message} />
      </strong>
    </Banner>
  );
}

function Unread({ overview }: { overview: Overview }) {
  return (
    <Banner kind="error" aside={<Old overview={overview} />}>
      <strong>The cluster could not be read.</strong>
      <span className="banner-reason">
        <Commands text={overview.reading.error ?? ""} />
      </span>
    </Banner>
  );
}

/** How old what is shown is. */
function Old({ overview }: { overview: Overview | undefined }) {
  const now = useNow();
  const readMs = overview?.reading.read_ms;
  if (!readMs) return null;
  return <>What is shown is old: it was read {span(now - readMs, 2)} ago.</>;
}

function Unfinished({ overview }: { overview: Overview }) {
  const { tables_read: read } = overview.reading;
  const { total } = overview;
  return (
    <Banner kind="news">
      Reading the cluster: {total > read ? `${count(read)} of ` : ""}
      {counted(Math.max(total, read), "table")} read{total > read ? "" : " so far"}.
    </Banner>
  );
}
