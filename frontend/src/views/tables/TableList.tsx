/** The list of tables: only the rows in sight exist, and only their pages are read. */
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import { PAGE_ROWS, type TablePages } from "../../api/queries";
import { COLUMNS, type Column } from "./columns";
import { sortedBy, type Filters } from "./filters";
import { TableRow } from "./TableRow";

const ROW_PX = 52;
const CARD_PX = 150;
const CARD_GAP_PX = 8;
const NARROW = "(max-width: 799px)";

interface Props {
  filters: Filters;
  onFilters: (filters: Filters) => void;
  pages: TablePages;
  /** Tells which pages are in sight. */
  onPages: (pages: number[]) => void;
}

export function TableList({ filters, onFilters, pages, onPages }: Props) {
  const body = useRef<HTMLDivElement>(null);
  const top = useTop(body);
  const isNarrow = useMatch(NARROW);
  const rows = pages.head?.matched ?? 0;
  const virtual = useWindowVirtualizer({
    count: rows,
    estimateSize: () => (isNarrow ? CARD_PX : ROW_PX),
    overscan: 8,
    gap: isNarrow ? CARD_GAP_PX : 0,
    scrollMargin: top,
    getItemKey: (index) => pages.at(index)?.path ?? index,
  });
  const items = virtual.getVirtualItems();
  useEffect(() => virtual.measure(), [virtual, isNarrow]);

  const first = Math.floor((items[0]?.index ?? 0) / PAGE_ROWS);
  const last = Math.floor((items.at(-1)?.index ?? 0) / PAGE_ROWS);
  useEffect(() => {
    onPages(Array.from({ length: last - first + 1 }, (_, i) => first + i));
  }, [first, last, onPages]);

  const [wanted, setWanted] = useState<number | null>(null);
  useEffect(() => {
    if (wanted === null) return;
    const link = linkOf(body.current, wanted);
    if (!link) return;
    link.focus({ preventScroll: true });
    setWanted(null);
  }, [wanted, items]);

  /** Arrow keys walk from table to table, also to rows that do not exist yet. */
  function walk(event: KeyboardEvent) {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-index]");
    if (!row || !(event.target as HTMLElement).classList.contains("row-link")) return;
    const at = Number(row.dataset.index);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows - 1 }[event.key];
    if (to === undefined || to < 0 || to >= rows) return;
    event.preventDefault();
    virtual.scrollToIndex(to, { align: "auto" });
    const link = linkOf(body.current, to);
    if (link) link.focus({ preventScroll: true });
    else setWanted(to);
  }

  return (
    <div
      role="table"
      aria-label="Lake tables"
      aria-rowcount={rows + 1}
      aria-colcount={COLUMNS.length}
      aria-busy={pages.isPrevious}
      className={pages.isPrevious ? "list previous" : "list"}
    >
      <div role="rowgroup" className="list-head">
        <div role="row" aria-rowindex={1} className="row-grid">
          {COLUMNS.map((column) => (
            <Heading key={column.id} column={column} filters={filters} onFilters={onFilters} />
          ))}
        </div>
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- keys of the links */}
      <div
        role="rowgroup"
        ref={body}
        className="list-body"
        style={{ height: virtual.getTotalSize() }}
        onKeyDown={walk}
      >
        {items.map((item) => (
          <TableRow
            key={item.key}
            table={pages.at(item.index)}
            index={item.index}
            style={{ top: item.start - top }}
            measure={virtual.measureElement}
          />
        ))}
      </div>
    </div>
  );
}

function linkOf(body: HTMLElement | null, index: number): HTMLElement | null {
  return body?.querySelector<HTMLElement>(`[data-index="${index}"] .row-link`) ?? null;
}

interface HeadingProps {
  column: Column;
  filters: Filters;
  onFilters: (filters: Filters) => void;
}

function Heading({ column, filters, onFilters }: HeadingProps) {
  const { sort } = column;
  const isSorted = sort !== undefined && filters.sort === sort;
  const direction = filters.descending ? "descending" : "ascending";
  const className = `cell-${column.id}${column.isNumber ? " number" : ""}`;
  if (!sort)
    return (
      <div role="columnheader" className={className}>
        <span className={column.id === "actions" ? "hidden" : undefined}>{column.heading}</span>
        {column.hint && <span className="heading-hint">{column.hint}</span>}
      </div>
    );
  return (
    <div role="columnheader" aria-sort={isSorted ? direction : "none"} className={className}>
      <button
        type="button"
        className="list-sort"
        onClick={() => onFilters(sortedBy(filters, sort))}
      >
        {column.heading}
        <span aria-hidden="true" className="sort-sign">
          {isSorted ? (filters.descending ? "↓" : "↑") : ""}
        </span>
      </button>
    </div>
  );
}

/** Where an element begins in the document, also after what is above it has grown. */
function useTop(element: React.RefObject<HTMLElement | null>): number {
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const look = () => {
      if (!element.current) return;
      setTop(Math.round(element.current.getBoundingClientRect().top + window.scrollY));
    };
    look();
    const watcher = new ResizeObserver(look);
    watcher.observe(document.body);
    return () => watcher.disconnect();
  }, [element]);
  return top;
}

function useMatch(query: string): boolean {
  const [matches, setMatches] = useState(() => window.matchMedia(query).matches);
  useEffect(() => {
    const media = window.matchMedia(query);
    const changed = () => setMatches(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}
