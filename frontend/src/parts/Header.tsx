/** The head of every view: where one is, how fresh the data are, and how the page looks. */
import { useIsFetching, useQueryClient } from "@tanstack/react-query";
import { Link, useLocation } from "wouter";
import type { Overview, Schemas } from "../api/client";
import { useNow } from "../clock";
import { counted, moment, span } from "../format";
import { useTheme, THEMES, type Theme } from "../theme";
import { Commands } from "./Commands";
import { MoonIcon, OutsideIcon, RefreshIcon, Sign, SunIcon, SystemIcon } from "./Icons";
import { Ago } from "./Times";

/** Readings older than this are called old: some of them have failed or take long. */
const OLD_MS = 60_000;

const VIEWS = [
  { name: "Tables", path: "/", isHere: (at: string) => at === "/" || at.startsWith("/tables") },
  { name: "Leases", path: "/leases", isHere: (at: string) => at.startsWith("/leases") },
  {
    name: "Maintenance",
    path: "/maintenance",
    isHere: (at: string) => at.startsWith("/maintenance"),
  },
];

interface Props {
  overview: Overview | undefined;
  /** Whether the last question to the server failed. */
  isCutOff: boolean;
}

export function Header({ overview, isCutOff }: Props) {
  const [at] = useLocation();
  return (
    <header className="top">
      <div className="top-line">
        <p className="brand">
          <Sign /> Lake tiering
        </p>
        <nav aria-label="Views">
          {VIEWS.map(({ name, path, isHere }) => (
            <Link key={path} href={path} aria-current={isHere(at) ? "page" : undefined}>
              {name}
            </Link>
          ))}
        </nav>
        <div className="top-tools">
          {overview?.may_act === false && <ReadOnly why={whyNot(overview)} />}
          <Freshness reading={overview?.reading} isCutOff={isCutOff} />
          <Refresh />
          <ThemeSwitch />
          {overview?.user && (
            <span className="user" title="You are logged in as">
              <span className="hidden">Logged in as </span>
              {overview.user}
            </span>
          )}
        </div>
      </div>
      {overview && <Where overview={overview} />}
    </header>
  );
}

function whyNot(overview: Overview): string {
  return overview.why_not ?? "You may only look at this page.";
}

function ReadOnly({ why }: { why: string }) {
  return (
    <span className="tag read-only" title={why.replaceAll("`", "")}>
      Read-only<span className="hidden">: {why.replaceAll("`", "")}</span>
    </span>
  );
}

function Where({ overview }: { overview: Overview }) {
  const { cluster, dag, pages = [] } = overview;
  return (
    <div className="where">
      <span className="where-part">
        <span className="quiet">Cluster</span> <code>{cluster}</code>
      </span>
      {pages.length > 1 ? <Pages pages={pages} /> : null}
      {dag && (
        <span className="where-part">
          <span className="quiet">DAG</span>{" "}
          <a href={dag.url}>
            {dag.dag_id} <OutsideIcon />
          </a>
          {dag.is_paused && <span className="tag late">paused</span>}
          <LastRun dag={dag} />
        </span>
      )}
      {!overview.may_act && (
        // the badge says it to screen readers; a finger has no hover
        <span className="where-part quiet" aria-hidden="true">
          <span>
            <Commands text={whyNot(overview)} />
          </span>
        </span>
      )}
    </div>
  );
}

function LastRun({ dag }: { dag: Schemas["DagState"] }) {
  if (!dag.last_run_state) return <span className="quiet">no run yet</span>;
  const isBad = dag.last_run_state === "failed";
  const words = (
    <>
      last run <span className={isBad ? "bad" : undefined}>{dag.last_run_state}</span>
      {dag.last_run_ms != null && (
        <>
          {" "}
          <Ago ms={dag.last_run_ms} />
        </>
      )}
    </>
  );
  return dag.last_run_url ? (
    <a href={dag.last_run_url}>{words}</a>
  ) : (
    <span className="quiet">{words}</span>
  );
}

/** As a click on a link: in a frame, the page around this one opens it. */
function follow(url: string): void {
  const link = document.createElement("a");
  link.href = url;
  document.body.append(link);
  link.click();
  link.remove();
}

/** The pages of other DAGs that tier. */
function Pages({ pages }: { pages: Schemas["PageLink"][] }) {
  return (
    <label className="where-part">
      <span className="quiet">Page of</span>{" "}
      <select
        value={pages.find((page) => page.is_this)?.url}
        onChange={(event) => follow(event.target.value)}
      >
        {pages.map((page) => (
          <option key={page.url} value={page.url}>
            {page.name}
          </option>
        ))}
      </select>
    </label>
  );
}

interface FreshnessProps {
  reading: Schemas["Reading"] | undefined;
  isCutOff: boolean;
}

function Freshness({ reading, isCutOff }: FreshnessProps) {
  const now = useNow();
  if (!reading?.read_ms) return <span className="fresh quiet">not read yet</span>;
  const age = now - reading.read_ms;
  const unread = reading.lags_unread;
  const isOld = isCutOff || reading.error != null || age > OLD_MS || unread > 0;
  return (
    <span className={isOld ? "fresh old" : "fresh"} title={`read ${moment(reading.read_ms)}`}>
      <span className="fresh-dot" aria-hidden="true" />
      read {span(age)} ago{unread > 0 && `, without ${counted(unread, "lag")}`}
    </span>
  );
}

function Refresh() {
  const queries = useQueryClient();
  const isFetching = useIsFetching() > 0;
  return (
    <button
      type="button"
      className="plain square"
      aria-label="Refresh"
      title="Refresh"
      onClick={() => void queries.invalidateQueries()}
    >
      <RefreshIcon isTurning={isFetching} />
    </button>
  );
}

const THEME_WORDS: Record<Theme, string> = {
  system: "Theme: as the system",
  light: "Theme: light",
  dark: "Theme: dark",
};
const THEME_ICONS = { system: SystemIcon, light: SunIcon, dark: MoonIcon };

function ThemeSwitch() {
  const [theme, choose] = useTheme();
  return (
    <div className="themes" role="group" aria-label="Theme">
      {THEMES.map((each) => {
        const Icon = THEME_ICONS[each];
        return (
          <button
            key={each}
            type="button"
            aria-pressed={theme === each}
            aria-label={THEME_WORDS[each]}
            title={THEME_WORDS[each]}
            onClick={() => choose(each)}
          >
            <Icon />
          </button>
        );
      })}
    </div>
  );
}
