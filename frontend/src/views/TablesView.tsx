/** The first view: is anything stuck, since when, why, and what may I do; then all tables. */
import { useCallback, useLayoutEffect, useRef, useState } from "react";
import type { Health } from "../api/client";
import { useOverview, useTablePages } from "../api/queries";
import { Commands } from "../parts/Commands";
import { NotAgain, useIsTold } from "../parts/Old";
import { Attention } from "./tables/Attention";
import { Empty, NoMatch, NothingRead } from "./tables/Empty";
import { addressOf, useFilters, withHealth, type Filters } from "./tables/filters";
import { HealthStrip } from "./tables/HealthStrip";
import { TableList } from "./tables/TableList";
import { Toolbar } from "./tables/Toolbar";
import { Totals } from "./tables/Totals";
import "./tables/tables.css";

const FIRST_PAGE = [0];
/** The head of the page stays in sight above what is scrolled to. */
const HEAD_PX = 64;

export function TablesView() {
  const overview = useOverview();
  const [filters, setFilters] = useFilters();
  const [inSight, setInSight] = useState(FIRST_PAGE);
  const pages = useTablePages(filters, inSight);
  const list = useRef<HTMLElement>(null);
  const address = addressOf(filters);
  useBackToTheTop(list, address);

  const toggle = useCallback(
    (health: Health) => {
      setFilters(withHealth(filters, health));
      showList(list.current);
    },
    [filters, setFilters],
  );
  const seen = useCallback((found: number[]) => {
    setInSight((old) => (String(old) === String(found) ? old : found));
  }, []);
  const { head } = pages;
  const isEmpty = head?.total === 0;
  const strip = isEmpty ? null : (
    <HealthStrip overview={overview.data} chosen={filters.health} onToggle={toggle} />
  );
  return (
    <>
      {overview.data ? (
        <Attention overview={overview.data}>{strip}</Attention>
      ) : (
        <>
          {!overview.error && <LoadingAttention />}
          {strip}
        </>
      )}
      <section ref={list} aria-label="All tables" className="tables">
        {!isEmpty && overview.data && <Totals overview={overview.data} />}
        {!isEmpty && (
          <Toolbar
            filters={filters}
            onFilters={setFilters}
            databases={overview.data?.databases ?? []}
            matched={head?.matched}
            total={head?.total}
          />
        )}
        {head && <NotAgain error={pages.error} what="The list" />}
        <List
          filters={filters}
          onFilters={setFilters}
          pages={pages}
          onPages={seen}
          isComplete={head?.reading.is_complete ?? false}
        />
      </section>
    </>
  );
}

interface ListProps {
  filters: Filters;
  onFilters: (filters: Filters) => void;
  pages: ReturnType<typeof useTablePages>;
  onPages: (pages: number[]) => void;
  isComplete: boolean;
}

function List({ filters, onFilters, pages, onPages, isComplete }: ListProps) {
  const { head, error } = pages;
  const isTold = useIsTold(error);
  if (!head) {
    return error ? (
      <div className="empty card" role="alert">
        <h2>The tables could not be read</h2>
        {!isTold && (
          <p>
            <Commands text={error.message} />
          </p>
        )}
      </div>
    ) : (
      <LoadingList />
    );
  }
  if (head.total === 0) {
    if (isComplete) return <Empty />;
    return head.reading.error ? <NothingRead /> : <LoadingList />;
  }
  if (head.matched === 0 && !pages.isPrevious)
    return <NoMatch filters={filters} onFilters={onFilters} />;
  return <TableList filters={filters} onFilters={onFilters} pages={pages} onPages={onPages} />;
}

function LoadingAttention() {
  return (
    <section aria-busy="true" aria-label="Attention">
      <h1>
        <span className="hidden">Reading the tables</span>
        <span className="bone wide" />
      </h1>
    </section>
  );
}

function LoadingList() {
  return (
    <div className="list card" role="status" aria-label="The tables are being read">
      {Array.from({ length: 8 }, (_, i) => (
        <div key={i} className="row-bone">
          <span className="bone" />
        </div>
      ))}
    </div>
  );
}

/** A filter of the head must not change rows that are out of sight. */
function showList(list: HTMLElement | null): void {
  const top = list?.getBoundingClientRect().top ?? 0;
  if (top < window.innerHeight * 0.6) return;
  const isCalm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  window.scrollBy({ top: top - HEAD_PX, behavior: isCalm ? "auto" : "smooth" });
}

/** Other filters begin at the first row: the list must not stay scrolled to where no rows are. */
function useBackToTheTop(list: React.RefObject<HTMLElement | null>, address: string): void {
  const before = useRef(address);
  useLayoutEffect(() => {
    if (before.current === address) return;
    before.current = address;
    const top = list.current?.getBoundingClientRect().top ?? 0;
    if (top < 0) window.scrollTo({ top: window.scrollY + top - HEAD_PX });
  }, [list, address]);
}
