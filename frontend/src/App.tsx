import { lazy, Suspense, useEffect } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { useOverview } from "./api/queries";
import { timeZone } from "./format";
import { Alerts } from "./parts/Alerts";
import { Header } from "./parts/Header";
import { Broken } from "./parts/Broken";
import { useViewFocus } from "./viewFocus";
import { TablesView } from "./views/TablesView";

// The first view does not wait for the code of the others, which follows once it is there.
const importTable = () => import("./views/TableView");
const importLeases = () => import("./views/LeasesView");
const importMaintenance = () => import("./views/MaintenanceView");
const TableView = lazy(async () => ({ default: (await importTable()).TableView }));
const LeasesView = lazy(async () => ({ default: (await importLeases()).LeasesView }));
const MaintenanceView = lazy(async () => ({
  default: (await importMaintenance()).MaintenanceView,
}));

const AHEAD_MS = 2_000;

function useViewsAhead(): void {
  useEffect(() => {
    const timer = setTimeout(() => {
      // one that does not arrive is asked for again when it is opened
      void Promise.allSettled([importTable(), importLeases(), importMaintenance()]);
    }, AHEAD_MS);
    return () => clearTimeout(timer);
  }, []);
}

export function App() {
  const { data, error } = useOverview();
  useTitle();
  useViewsAhead();
  const [at] = useLocation();
  useViewFocus(at);
  return (
    <>
      {/* not a link: the hash of the address says which view is shown */}
      <button
        type="button"
        className="skip"
        onClick={() => document.getElementById("content")?.focus()}
      >
        Skip to the content
      </button>
      <Header overview={data} isCutOff={error !== null} />
      <main id="content" tabIndex={-1}>
        <Alerts overview={data} error={error} />
        <Broken key={at}>
          <Suspense fallback={<Loading />}>
            <Switch>
              <Route path="/">
                <TablesView />
              </Route>
              <Route path="/tables/:database/:table">
                {({ database, table }) => (
                  <TableView key={`${database}.${table}`} database={database} table={table} />
                )}
              </Route>
              <Route path="/leases">
                <LeasesView />
              </Route>
              <Route path="/maintenance">
                <MaintenanceView />
              </Route>
              <Route>
                <div className="empty card">
                  <h1>This page has no such view</h1>
                  <p>
                    <Link href="/">All tables</Link>
                  </p>
                </div>
              </Route>
            </Switch>
          </Suspense>
        </Broken>
      </main>
      <footer className="foot quiet">
        Times are those of the time zone {timeZone()}.{data && ` Sluice ${data.version}.`}
      </footer>
    </>
  );
}

function Loading() {
  return (
    <div className="empty card" role="status" aria-label="The view is loading">
      <span className="bone wide" />
      <span className="bone" />
    </div>
  );
}

const TITLES: Record<string, string> = { leases: "Leases", maintenance: "Maintenance" };

/** Tabs and the browser's history name the view. */
function useTitle(): void {
  const [at] = useLocation();
  useEffect(() => {
    const [, view = "", database, table] = at.split("/");
    const name = view === "tables" ? `${database}.${table}` : TITLES[view];
    document.title = name ? `${name} · Lake tiering` : "Lake tiering";
  }, [at]);
}
