import { useEffect } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { useOverview } from "./api/queries";
import { Alerts } from "./parts/Alerts";
import { Header } from "./parts/Header";
import { LeasesView } from "./views/LeasesView";
import { MaintenanceView } from "./views/MaintenanceView";
import { TablesView } from "./views/TablesView";
import { TableView } from "./views/TableView";

export function App() {
  const { data, error } = useOverview();
  useTitle();
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
      </main>
    </>
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
