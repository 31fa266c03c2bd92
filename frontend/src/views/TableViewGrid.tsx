/** A table of facts: sorted by a click on a heading, and cards on a phone. */
import { Fragment, useId, useState, type ReactNode } from "react";
import "./TableViewGrid.css";

export interface Column<Row> {
  key: string;
  head: string;
  /** More words for the heading. */
  hint?: string;
  cell: (row: Row) => ReactNode;
  /** Numbers and texts in order; null comes last. Absent: the column cannot be sorted. */
  sortBy?: (row: Row) => number | string | null | undefined;
  /** The server sorts by this column. */
  isSortable?: boolean;
  isNumber?: boolean;
  /** The name of the row: a heading of its card. */
  isName?: boolean;
  /** What stands before the name on a card. */
  prefix?: string;
}

export interface Sort {
  key: string;
  isDescending: boolean;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  sort?: Sort | null;
  onSort?: (sort: Sort) => void;
  /** The rows come in this order. */
  isSorted?: boolean;
  classOf?: (row: Row) => string | undefined;
  /** What a row shows below itself when it is opened; null: it has nothing more. */
  more?: (row: Row) => ReactNode;
  nameOf?: (row: Row) => string;
}

export function Grid<Row>(props: Props<Row>) {
  const { caption, columns, rows, keyOf, sort, onSort, more } = props;
  const sorted = sort && !props.isSorted ? sortedRows(rows, columns, sort) : rows;
  const grid = (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- keys must be able to scroll it
    <div className="grid-scroll" role="region" aria-label={caption} tabIndex={0}>
      <table className="facts-table">
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <Heading key={column.key} column={column} sort={sort ?? null} onSort={onSort} />
            ))}
            {more && (
              <th scope="col">
                <span className="hidden">More</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <BodyRow key={keyOf(row)} row={row} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  );
  return onSort ? (
    <>
      <SortBy columns={columns} sort={sort ?? null} onSort={onSort} />
      {grid}
    </>
  ) : (
    grid
  );
}

interface SortByProps<Row> {
  columns: Column<Row>[];
  sort: Sort | null;
  onSort: (sort: Sort) => void;
}

/** The order on a narrow screen, which has no headings. */
function SortBy<Row>({ columns, sort, onSort }: SortByProps<Row>) {
  const sortable = columns.filter(isSortable);
  const isKnown = sortable.some((each) => each.key === sort?.key);
  return (
    <label className="sort-by">
      <span className="quiet">Sort by</span>{" "}
      <select
        value={isKnown ? sort!.key : ""}
        onChange={(event) => {
          const column = sortable.find((each) => each.key === event.target.value);
          if (column) onSort({ key: column.key, isDescending: Boolean(column.isNumber) });
        }}
      >
        {!isKnown && <option value="">–</option>}
        {sortable.map(({ key, head }) => (
          <option key={key} value={key}>
            {head}
          </option>
        ))}
      </select>
    </label>
  );
}

function isSortable<Row>(column: Column<Row>): boolean {
  return Boolean(column.sortBy || column.isSortable);
}

function BodyRow<Row>({ row, columns, keyOf, classOf, more, nameOf }: Props<Row> & { row: Row }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const body = more?.(row) ?? null;
  return (
    <Fragment>
      <tr className={classOf?.(row)} data-key={keyOf(row)}>
        {columns.map((column) => {
          const content = column.cell(row);
          const className = column.isNumber ? "number" : undefined;
          return column.isName ? (
            <th key={column.key} scope="row" className={className} data-prefix={column.prefix}>
              {content}
            </th>
          ) : (
            <td
              key={column.key}
              className={[className, content == null ? "nothing" : null].filter(Boolean).join(" ")}
              data-head={column.head}
            >
              <div>{content ?? <span className="quiet">–</span>}</div>
            </td>
          );
        })}
        {more && (
          <td className="more">
            {body && (
              <button
                type="button"
                className="button small"
                aria-expanded={isOpen}
                aria-controls={isOpen ? id : undefined}
                aria-label={`${isOpen ? "Less" : "More"} about ${nameOf?.(row) ?? "this row"}`}
                onClick={() => setOpen(!isOpen)}
              >
                {isOpen ? "Less" : "More"}
              </button>
            )}
          </td>
        )}
      </tr>
      {isOpen && body && (
        <tr className="more-row" id={id}>
          <td colSpan={columns.length + 1}>{body}</td>
        </tr>
      )}
    </Fragment>
  );
}

interface HeadingProps<Row> {
  column: Column<Row>;
  sort: Sort | null;
  onSort: ((sort: Sort) => void) | undefined;
}

function Heading<Row>({ column, sort, onSort }: HeadingProps<Row>) {
  const isSorted = sort?.key === column.key;
  const order = isSorted ? (sort.isDescending ? "descending" : "ascending") : "none";
  const className = column.isNumber ? "number" : undefined;
  if (!isSortable(column) || !onSort) {
    return (
      <th scope="col" className={className} title={column.hint}>
        {column.head}
      </th>
    );
  }
  return (
    <th scope="col" className={className} aria-sort={order} title={column.hint}>
      <button
        type="button"
        className="sort"
        onClick={() =>
          onSort({
            key: column.key,
            isDescending: isSorted ? !sort.isDescending : Boolean(column.isNumber),
          })
        }
      >
        {column.head}
        <span className="sort-mark" aria-hidden="true">
          {isSorted ? (sort.isDescending ? "▾" : "▴") : "▾"}
        </span>
      </button>
    </th>
  );
}

function sortedRows<Row>(rows: Row[], columns: Column<Row>[], sort: Sort): Row[] {
  const by = columns.find((each) => each.key === sort.key)?.sortBy;
  if (!by) return rows;
  const sign = sort.isDescending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [by(a) ?? null, by(b) ?? null];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right), "en", { numeric: true });
  });
}

/** `sort=lag` or `sort=-lag` of an address. */
export function sortOf(text: string | null): Sort | null {
  if (!text) return null;
  return { key: text.replace(/^-/, ""), isDescending: text.startsWith("-") };
}

export function sortText(sort: Sort): string {
  return `${sort.isDescending ? "-" : ""}${sort.key}`;
}
