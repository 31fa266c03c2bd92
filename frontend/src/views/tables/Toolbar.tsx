/** Search and filters of the list. */
import { useEffect, useRef, useState } from "react";
import { count, counted } from "../../format";
import { SearchIcon } from "../../parts/Icons";
import { COLUMNS } from "./columns";
import {
  isFiltered,
  NO_FILTERS,
  orderedBy,
  SEARCH_MAX,
  type Filters,
  type SortKey,
} from "./filters";

/** Keys that follow each other faster are sent together. */
const TYPED_MS = 50;

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
      <Search filters={filters} onFilters={onFilters} />
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

function Search({ filters, onFilters }: Pick<Props, "filters" | "onFilters">) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState<string | null>(null); // what is not in the address yet
  useEffect(() => {
    if (typed === null) return;
    const timer = setTimeout(() => {
      if (typed !== filters.search) onFilters({ ...filters, search: typed }, { replace: true });
      setTyped(null);
    }, TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed, filters, onFilters]);

  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const isTyping = target.matches("input, textarea, select") || target.isContentEditable;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);

  return (
    <div className="search">
      <SearchIcon />
      <input
        ref={input}
        type="search"
        maxLength={SEARCH_MAX}
        aria-label="Search tables"
        aria-keyshortcuts="/"
        placeholder="Search tables"
        autoComplete="off"
        spellCheck={false}
        value={typed ?? filters.search}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          if (event.currentTarget.value) setTyped("");
          else event.currentTarget.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
