/** Who keeps KV snapshots from being deleted, for how long, and what that costs. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import { api, dataOf, type Schemas } from "../api/client";
import { useNow } from "../clock";
import { ago, bytes, count, counted, moment, spanSince } from "../format";
import { ActionButton } from "../parts/Actions";
import { Commands } from "../parts/Commands";
import { NotAgain, Old } from "../parts/Old";
import { useRowFocus } from "../rowFocus";
import { tableAddress, useAddress } from "./TableViewAddress";
import { Grid, sortOf, sortText, type Column } from "./TableViewGrid";
import { Links } from "./TableViewHead";
import { Failed, Nothing, Skeleton } from "./TableViewStates";
import "./TableView.css";

type Lease = Schemas["Lease"];

export function LeasesView() {
  const [params] = useAddress();
  const { data, error, refetch } = useQuery({
    queryKey: ["leases"],
    queryFn: () => dataOf(api.GET("/api/v1/leases")),
    refetchInterval: 5_000,
  });
  const wanted = params.get("lease");
  return (
    <article className="table-view">
      <div className="table-title">
        <h1>Leases</h1>
        {data && data.leases.length > 0 && (
          <span className="quiet">{counted(data.leases.length, "lease")}</span>
        )}
      </div>
      <p className="quiet lead">
        A lease keeps KV snapshots of primary-key tables, so that rounds and readers can read them.
        It ends when its holder drops it, or when nobody renews it.
      </p>
      {data ? (
        <>
          <NotAgain error={error} what="The leases" />
          <Old old={data.old} what="The leases" />
          {!data.is_complete && data.note && (
            <p className="notice whole">
              <Commands text={data.note} />
            </p>
          )}
          {wanted !== null && !data.leases.some((each) => each.lease_id === wanted) && (
            <p className="notice" role="status">
              {isWhole(data) ? (
                <>
                  There is no lease <code>{wanted}</code> any more. It was dropped, or it has
                  expired.
                </>
              ) : (
                <>
                  The lease <code>{wanted}</code> is not in this list, which does not have all
                  leases.
                </>
              )}
            </p>
          )}
          {data.leases.length === 0 ? (
            <Nothing title={data.is_complete ? "There are no leases" : "No lease is known"}>
              <p>
                {data.is_complete
                  ? "Nothing keeps old KV snapshots from being deleted."
                  : "Leases that this page cannot see may keep old KV snapshots."}
              </p>
            </Nothing>
          ) : (
            <>
              <LeaseList leases={data.leases} nowMs={data.now_ms} wanted={wanted} />
              {(data.total ?? 0) > data.leases.length && (
                <p className="quiet">
                  Shown are the {count(data.leases.length)} largest of{" "}
                  {counted(data.total ?? 0, "lease")}. <code>sluice leases</code> lists all.
                </p>
              )}
            </>
          )}
        </>
      ) : error ? (
        <Failed what="The leases" error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton what="the leases" />
      )}
    </article>
  );
}

function isWhole({ is_complete, leases, total }: Schemas["Leases"]): boolean {
  return is_complete && (total ?? 0) <= leases.length;
}

interface ListProps {
  leases: Lease[];
  /** The server's clock when it answered. */
  nowMs: number;
  /** The lease that the address names. */
  wanted?: string | null;
}

export function LeaseList({ leases, nowMs, wanted = null }: ListProps) {
  const [params, change] = useAddress();
  const now = Math.max(useNow(), nowMs);
  const box = useRef<HTMLDivElement>(null);
  useRowFocus(
    box,
    leases.map((each) => each.lease_id),
  );
  useEffect(() => {
    if (wanted !== null)
      box.current?.querySelector(".row-picked")?.scrollIntoView?.({ block: "center" });
  }, [wanted]);
  return (
    <div ref={box}>
      <Grid
        caption="Leases"
        columns={columnsOf(leases, now)}
        rows={leases}
        keyOf={(each) => each.lease_id}
        sort={sortOf(params.get("sort")) ?? { key: "age", isDescending: true }}
        onSort={(sort) => change({ sort: sortText(sort) })}
        classOf={(each) => (each.lease_id === wanted ? "row-picked" : undefined)}
      />
    </div>
  );
}

function columnsOf(all: Lease[], now: number): Column<Lease>[] {
  const hasOwner = all.some((each) => each.owner);
  return [
    {
      key: "lease",
      head: "Held by",
      isName: true,
      sortBy: (each) => each.holder,
      cell: (each) => <Holder lease={each} />,
    },
    ...(hasOwner
      ? [
          {
            key: "owner",
            head: "Owner",
            hint: "The user who made it",
            sortBy: (each: Lease) => each.owner,
            cell: (each: Lease) => each.owner ?? null,
          },
        ]
      : []),
    { key: "tables", head: "Tables", cell: (each) => <HeldTables lease={each} /> },
    {
      key: "buckets",
      head: "Buckets",
      isNumber: true,
      sortBy: (each) => each.buckets,
      cell: (each) => (each.buckets == null ? null : count(each.buckets)),
    },
    {
      key: "held",
      head: "Held",
      hint: "Bytes of its KV snapshots",
      isNumber: true,
      sortBy: (each) => each.held_bytes,
      cell: (each) => (each.held_bytes == null ? null : <Held lease={each} />),
    },
    {
      key: "age",
      head: "Age",
      isNumber: true,
      sortBy: (each) => (each.created_ms == null ? null : now - each.created_ms),
      cell: (each) => (each.created_ms == null ? null : <Age lease={each} now={now} />),
    },
    {
      key: "expires",
      head: "Expires",
      hint: "If nobody renews it",
      isNumber: true,
      sortBy: (each) => each.expires_ms,
      cell: (each) => (each.expires_ms == null ? null : <Expires lease={each} now={now} />),
    },
    {
      key: "drop",
      head: "Action",
      cell: (each) => (
        <ActionButton
          action={{
            kind: "drop",
            leaseId: each.lease_id,
            holder: each.holder,
            holderKind: each.holder_kind,
            freedBytes: each.freed_bytes ?? null,
          }}
          className="button small"
        />
      ),
    },
  ];
}

function Holder({ lease }: { lease: Lease }) {
  const address = `/leases?lease=${encodeURIComponent(lease.lease_id)}`;
  return (
    <>
      {lease.holder !== lease.lease_id && (
        <span className="holder">
          <Commands text={lease.holder} />
        </span>
      )}
      <Link href={address} className="lease-id" title="Link to this lease">
        <code>{lease.lease_id}</code>
      </Link>
      {lease.links && lease.links.length > 0 && <Links links={lease.links} />}
    </>
  );
}

function HeldTables({ lease }: { lease: Lease }) {
  const more = (lease.table_count ?? lease.tables.length) - lease.tables.length;
  return (
    <ul className="held">
      {lease.tables.map((each) => (
        <li key={each.table_id ?? each.path}>
          {each.path ? (
            <Link href={tableAddress(each.path, "leases")}>{each.path}</Link>
          ) : (
            <span className="quiet">dropped table {each.table_id}</span>
          )}
          {each.buckets != null && (
            <span className="quiet"> {counted(each.buckets, "bucket")}</span>
          )}
        </li>
      ))}
      {more > 0 && <li className="quiet">and {counted(more, "table")} more</li>}
    </ul>
  );
}

function Held({ lease }: { lease: Lease }) {
  if (lease.held_bytes == null) return null;
  const { freed_bytes: freed, held_bytes: held } = lease;
  return (
    <>
      {bytes(held)}
      {freed != null && (
        <span className="sub">
          {freed === held ? "all freed by a drop" : `${bytes(freed)} freed by a drop`}
        </span>
      )}
    </>
  );
}

/** A renewal right after the beginning says nothing that the age does not say. */
const RENEWED_MS = 60_000;

function Age({ lease, now }: { lease: Lease; now: number }) {
  if (lease.created_ms == null) return null;
  return (
    <span title={moment(lease.created_ms)}>
      {spanSince(lease.created_ms, now)}
      {lease.renewed_ms != null && lease.renewed_ms - lease.created_ms >= RENEWED_MS && (
        <span className="sub">renewed {ago(lease.renewed_ms, now)}</span>
      )}
    </span>
  );
}

function Expires({ lease, now }: { lease: Lease; now: number }) {
  if (lease.expires_ms == null) return null;
  const left = lease.expires_ms - now;
  return (
    <span title={moment(lease.expires_ms)}>
      {left > 0 ? `in ${spanSince(0, left)}` : ago(lease.expires_ms, now)}
    </span>
  );
}
