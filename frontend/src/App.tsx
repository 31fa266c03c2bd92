import { Link, Route, Switch } from "wouter";
import { LeasesView } from "./views/LeasesView";
import { MaintenanceView } from "./views/MaintenanceView";
import { TablesView } from "./views/TablesView";
import { TableView } from "./views/TableView";

export function App() {
  return (
    <>
      <header className="top">
        <strong>Lake tiering</strong>
        <nav aria-label="Views">
          <Link href="/">Tables</Link>
          <Link href="/leases">Leases</Link>
          <Link href="/maintenance">Maintenance</Link>
        </nav>
      </header>
      <main>
        <Switch>
          <Route path="/">
            <TablesView />
          </Route>
          <Route path="/tables/:database/:table">
            {({ database, table }) => <TableView database={database} table={table} />}
          </Route>
          <Route path="/leases">
            <LeasesView />
          </Route>
          <Route path="/maintenance">
            <MaintenanceView />
          </Route>
          <Route>
            <p>This page has no such view.</p>
          </Route>
        </Switch>
      </main>
    </>
  );
}
