/** The cluster in one line, for who sees it for the first time. */
import { Link } from "wouter";
import type { Overview } from "../../api/client";
import { bytes, counted } from "../../format";

export function Totals({ overview }: { overview: Overview }) {
  const { total, lake_bytes: size, lake_rows: rows, lag_rows: lag } = overview;
  const lake = [
    size == null ? null : bytes(size),
    rows == null ? null : counted(rows, "row"),
  ].filter((each) => each !== null);
  const says = [
    counted(total, "table"),
    lake.length > 0 ? `${lake.join(" and ")} in files of the lake` : null,
    lag == null ? null : lag === 0 ? "no row missing" : `${counted(lag, "row")} missing`,
  ].filter((each) => each !== null);
  return (
    <p className="totals">
      {says.join(", ")}. <Link href="/leases">Who reads KV snapshots</Link>
    </p>
  );
}
