/** Search and filters of the list. */
import { count, counted } from "../../format";
import { SearchBox } from "../../parts/SearchBox";
import { COLUMNS } from "./columns";
import { isFiltered, NO_FILTERS, orderedBy, type Filters, type SortKey } from "./filters";

interface Props {
  filters: Filters;
  onFilters: (filters: Filters, options?: { replace?: boolean }) => void;
  databases: string[];
  matched: number | undefined;
  total: number | undefined;
}

export function Toolbar({ filters, onFilters, databases, matched, total }: Props) {
  const names =
    filters.database && !databases.includes(filters.database)
      ? [filters.database, ...databases]
      : databases;
  return (
    <div className="toolbar" role="search" aria-label="Lake tables">
      <SearchBox
        value={filters.search}
        onSearch={(search) => onFilters({ ...filters, search }, { replace: true })}
      />
      {(names.length > 1 || filters.database) && (
        <select
          aria-label="Database"
          value={filters.database ?? ""}
          onChange={(event) => onFilters({ ...filters, database: event.target.value || null })}
        >
          <option value="">All databases</option>
          {names.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      )}
      <SortBy filters={filters} onFilters={onFilters} />
      {isFiltered(filters) && (
        <button
          type="button"
          className="plain"
          onClick={() =>
            onFilters({ ...NO_FILTERS, sort: filters.sort, descending: filters.descending })
          }
        >
          Clear filters
        </button>
      )}
      <p className="toolbar-count quiet" role="status">
        {matched === undefined || total === undefined
          ? ""
          : matched === total
            ? counted(total, "table")
            : `${count(matched)} of ${counted(total, "table")}`}
      </p>
    </div>
  );
}

/** The order on a narrow screen, which has no headings. */
function SortBy({ filters, onFilters }: Pick<Props, "filters" | "onFilters">) {
  return (
    <label className="sort-by">
      <span className="quiet">Sort by</span>{" "}
      <select
        value={filters.sort}
        onChange={(event) => onFilters(orderedBy(filters, event.target.value as SortKey))}
      >
        {SORTS.map(({ sort, heading }) => (
          <option key={sort} value={sort}>
            {heading}
          </option>
        ))}
      </select>
    </label>
  );
}

const SORTS: { sort: SortKey; heading: string }[] = [
  { sort: "attention", heading: "Attention" },
  ...COLUMNS.flatMap(({ sort, heading }) => (sort ? [{ sort, heading }] : [])),
];
