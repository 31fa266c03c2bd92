/** What keeps lake tables fast and small: what they need, what was done, and the last runs. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link } from "wouter";
import { api, dataOf, type Schemas } from "../api/client";
import { count, counted, span } from "../format";
import { Commands } from "../parts/Commands";
import { NotAgain } from "../parts/Old";
import { SEARCH_MAX, SearchBox } from "../parts/SearchBox";
import { Ago } from "../parts/Times";
import { maintenanceColumns, More } from "./MaintenanceViewTable";
import { useAddress } from "./TableViewAddress";
import { Grid, sortOf, sortText } from "./TableViewGrid";
import { Failed, Nothing, Skeleton } from "./TableViewStates";
import "./TableView.css";
import "./MaintenanceView.css";

type Maintenance = Schemas["Maintenance"];
type Run = Schemas["MaintenanceRunModel"];
type State = Schemas["MaintainedTable"]["state"];

const PAGE_ROWS = 100;
/** A run of more tasks is folded: the tables are below it. */
const UNFOLDED_MAX = 5;

const STATES: [State, string, string][] = [
  ["problem", "Problems", "something did not work in the last maintenance"],
  ["needs", "Needs", "needs something, as of the last report"],
  ["requested", "Requested", "a compaction is requested, whatever else the table needs"],
  ["unknown", "No report", "no report is known"],
  ["ok", "OK", "needs nothing"],
];
const SORTS = [
  "attention",
  "table",
  "last_maintained",
  "last_compacted",
  "last_expired",
  "requested",
  "lake_files",
  "lake_bytes",
] as const;

export function MaintenanceView() {
  const [params, change] = useAddress();
  const page = Math.max(Number.parseInt(params.get("page") ?? "1", 10) || 1, 1);
  const search = (params.get("search") ?? "").slice(0, SEARCH_MAX);
  const state = STATES.find(([key]) => key === params.get("state"))?.[0] ?? null;
  const asked = sortOf(params.get("sort"));
  const sort = SORTS.find((each) => each === asked?.key) ?? "attention";
  const query = {
    search,
    sort,
    descending: asked?.isDescending ?? false,
    offset: (page - 1) * PAGE_ROWS,
    limit: PAGE_ROWS,
    ...(state ? { state: [state] } : {}),
  };
  const { data, error, refetch, isPlaceholderData } = useQuery({
    queryKey: ["maintenance", query],
    queryFn: ({ signal }) => dataOf(api.GET("/api/v1/maintenance", { params: { query }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });
  const last = data && !isPlaceholderData ? lastPage(data.matched) : page;
  useEffect(() => {
    if (page > last) change({ page: last > 1 ? `${last}` : null }); // there were more once
  }, [page, last, change]);
  return (
    <article className="table-view">
      <h1>Maintenance</h1>
      <p className="quiet lead">
        Rounds compact files and expire snapshots in their own commit. <code>sluice maintain</code>{" "}
        and the maintenance DAG do the rest, and report what a table needs.
      </p>
      {data ? (
        <>
          <NotAgain error={error} what="The state" />
          <Runs data={data} />
          {data.note && (
            <p className="notice whole">
              <Commands text={data.note} />
            </p>
          )}
          {data.error && <p className="notice bad whole">{data.error}</p>}
          {data.total === 0 ? (
            <Nothing title="There are no lake tables">
              <p>
                <Link href="/">Tables</Link> says how to make one.
              </p>
            </Nothing>
          ) : (
            <>
              <div className="filters">
                <SearchBox
                  value={search}
                  onSearch={(found) => change({ search: found, page: null })}
                />
                <States
                  data={data}
                  chosen={state}
                  onChoose={(key) => change({ state: key, page: null })}
                />
                <p className="quiet" role="status">
                  {data.matched < data.total ? `${count(data.matched)} of ` : ""}
                  {counted(data.total, "table")}
                  {data.are_rounds_read ? "" : "; the histories of rounds are still being read"}
                </p>
              </div>
              {data.tables.length === 0 ? (
                <Nothing title="No table matches">
                  <button
                    type="button"
                    className="button"
                    onClick={() => change({ search: null, state: null, page: null })}
                  >
                    Show all tables
                  </button>
                </Nothing>
              ) : (
                <div aria-busy={isPlaceholderData}>
                  <Grid
                    caption="Maintenance of tables"
                    columns={maintenanceColumns(data.tables)}
                    rows={data.tables}
                    keyOf={(each) => each.path}
                    nameOf={(each) => each.path}
                    sort={{ key: sort, isDescending: query.descending }}
                    isSorted
                    onSort={(to) => change({ sort: sortText(to), page: null })}
                    classOf={(each) => (each.state === "problem" ? "row-failed" : undefined)}
                    more={(each) => <More table={each} />}
                  />
                </div>
              )}
              <Pages
                page={page}
                total={data.matched}
                onPage={(to) => change({ page: to > 1 ? `${to}` : null })}
              />
            </>
          )}
        </>
      ) : error ? (
        <Failed what="The maintenance" error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton what="the maintenance" />
      )}
    </article>
  );
}

interface StatesProps {
  data: Maintenance;
  chosen: State | null;
  onChoose: (state: State | null) => void;
}

function States({ data, chosen, onChoose }: StatesProps) {
  return (
    <div className="states" role="group" aria-label="Filter by state">
      {STATES.map(([key, name, means]) => (
        <button
          key={key}
          type="button"
          className="button small"
          title={means}
          aria-pressed={chosen === key}
          onClick={() => onChoose(chosen === key ? null : key)}
        >
          {name} {count(data.by_state?.[key] ?? 0)}
        </button>
      ))}
    </div>
  );
}

const RUN_STATES: Record<Run["state"], string> = {
  running: "no end yet",
  ended: "ended",
  failed: "failed",
  lost: "lost: no end reported",
  unreported: "ended",
};

function Runs({ data }: { data: Maintenance }) {
  const runs = data.runs ?? [];
  if (runs.length === 0) {
    if (data.note) return null; // it says why
    return (
      <p className="notice">
        {data.runs_read_ms == null
          ? "The runs of the maintenance are being read."
          : "No run of the maintenance is known here."}
      </p>
    );
  }
  return (
    <section aria-label="Last runs" className="section">
      <h2>Last runs</h2>
      <ul className="runs">
        {groupsOf(runs).map((tasks) => (
          <li key={`${tasks[0].folder}/${tasks[0].began_ms}`}>
            {tasks.length === 1 ? <RunLine run={tasks[0]} /> : <Tasks tasks={tasks} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

type Tasks = [Run, ...Run[]];

/** Runs in the order of the answer, each with its tasks in Airflow's order. */
function groupsOf(runs: Run[]): Tasks[] {
  const groups = new Map<string, Tasks>();
  for (const run of runs) {
    const { deployment_id, dag_id, run_id } = run;
    const key = dag_id ? JSON.stringify([deployment_id, dag_id, run_id]) : run.folder;
    const tasks = groups.get(key);
    if (tasks) tasks.push(run);
    else groups.set(key, [run]);
  }
  for (const tasks of groups.values()) {
    tasks.sort(
      (a, b) =>
        (a.task_id ?? "").localeCompare(b.task_id ?? "") || (a.map_index ?? 0) - (b.map_index ?? 0),
    );
  }
  return [...groups.values()];
}

function Tasks({ tasks }: { tasks: Tasks }) {
  const bad = tasks.filter(isBad).length;
  const problems = tasks.reduce((sum, each) => sum + each.problems, 0);
  return (
    <details className="run-tasks" open={tasks.length <= UNFOLDED_MAX}>
      <summary>
        <span className="run-line">
          <span>{tasks[0].by}</span>
          <span>
            began <Ago ms={Math.min(...tasks.map((each) => each.began_ms))} />
          </span>
          <span className="quiet">{counted(tasks.length, "task")}</span>
          {bad > 0 && <span className="outcome failed">{count(bad)} failed or lost</span>}
          {problems > 0 && <span className="outcome warned">{counted(problems, "problem")}</span>}
        </span>
      </summary>
      <ul className="runs of-run" aria-label={`Tasks of ${tasks[0].by}`}>
        {tasks.map((task) => (
          <li key={task.folder}>
            <RunLine run={task} name={taskName(task)} />
          </li>
        ))}
      </ul>
    </details>
  );
}

function isBad(run: Run): boolean {
  return run.state === "failed" || run.state === "lost";
}

/** The colour of a run: green only if nothing went wrong. */
function outcomeOf(run: Run): string {
  if (isBad(run)) return "failed";
  if (run.problems > 0 || run.problem) return "warned";
  return run.state === "ended" ? "committed" : "";
}

function taskName({ task_id, map_index }: Run): string {
  return map_index == null ? (task_id ?? "") : `${task_id}, map index ${map_index}`;
}

function RunLine({ run, name = run.by }: { run: Run; name?: string }) {
  const isOpen = run.state === "running" || run.state === "lost";
  const words = [
    run.state === "unreported" && run.tables === 0 ? null : counted(run.tables, "table"),
    run.needed > 0 ? `${count(run.needed)} needed something` : null,
    ...numbersOf(run.numbers),
    run.ended_ms ? `took ${span(run.ended_ms - run.began_ms, 2)}` : null,
  ].filter((each) => each !== null);
  return (
    <>
      <div className="run-line">
        <span className={`outcome ${outcomeOf(run)}`}>
          {RUN_STATES[run.state]}
          {run.problems > 0 && `, ${counted(run.problems, "table")} with a problem`}
        </span>
        {run.url ? <a href={run.url}>{name}</a> : <span>{name}</span>}
        <span>
          {run.ended_ms == null && "began "}
          <Ago ms={run.ended_ms ?? run.began_ms} />
        </span>
        {!run.applied && <span className="hint">dry run: it changed nothing</span>}
        <span className="quiet">{words.join(", ")}</span>
        {isOpen && run.at && (
          <span className="quiet">
            {run.state === "running" ? "now" : "last"} at {run.at}
          </span>
        )}
        {isOpen && run.last_sign_ms != null && (
          <span className="quiet">
            last sign <Ago ms={run.last_sign_ms} />
          </span>
        )}
      </div>
      {[run.error, run.problem].map(
        (text) =>
          text && (
            <p key={text} className="whole bad-text">
              {text}
            </p>
          ),
      )}
    </>
  );
}

/** What was done, and to what. */
const NUMBERS: Record<string, [string, string]> = {
  equality_files_removed: ["equality delete file", "removed"],
  snapshots_expired: ["snapshot", "expired"],
  orphans_removed: ["orphan", "removed"],
  compactions_requested: ["compaction", "requested"],
  manifests_merged: ["manifest", "merged"],
};

function numbersOf(numbers: Record<string, number>): string[] {
  return Object.entries(NUMBERS).flatMap(([key, [noun, done]]) => {
    const n = numbers[key] ?? 0;
    return n > 0 ? [`${counted(n, noun)} ${done}`] : [];
  });
}

function lastPage(rows: number): number {
  return Math.max(Math.ceil(rows / PAGE_ROWS), 1);
}

interface PagesProps {
  page: number;
  total: number;
  onPage: (page: number) => void;
}

function Pages({ page, total, onPage }: PagesProps) {
  const last = lastPage(total);
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
