/** What the list says when it has no rows. */
import { NO_FILTERS, type Filters } from "./filters";

export function Empty() {
  return (
    <div className="empty card">
      <h2>No table of this cluster is in the lake yet</h2>
      <p>
        A table is tiered once its option <code>table.datalake.enabled</code> is <code>true</code>.
        In Flink SQL:
      </p>
      <pre>
        <code>
          ALTER TABLE shop.orders SET (&apos;table.datalake.enabled&apos; = &apos;true&apos;)
        </code>
      </pre>
      <p>
        <code>sluice create-table</code> sets it for the tables that it creates.
      </p>
      <p className="quiet">It appears here a few seconds later.</p>
    </div>
  );
}

/** The head of the page says why. */
export function NothingRead() {
  return (
    <div className="empty card">
      <h2>No table was read yet</h2>
      <p className="quiet">The tables appear here when the cluster answers.</p>
    </div>
  );
}

interface Props {
  filters: Filters;
  onFilters: (filters: Filters) => void;
}

export function NoMatch({ filters, onFilters }: Props) {
  return (
    <div className="empty card">
      <h2>No table matches</h2>
      <p className="quiet">
        {filters.search ? (
          <>
            No name contains “{filters.search}”
            {filters.health.length > 0 || filters.database ? " with these filters" : ""}.
          </>
        ) : (
          `No table${filters.database ? ` of the database ${filters.database}` : ""} is ${
            filters.health.length > 0 ? "in this state now" : "in the lake"
          }.`
        )}
      </p>
      <button type="button" className="button" onClick={() => onFilters(NO_FILTERS)}>
        Clear filters
      </button>
    </div>
  );
}
