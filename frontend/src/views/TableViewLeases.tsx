/** The leases on KV snapshots of one table. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, dataOf } from "../api/client";
import { Commands } from "../parts/Commands";
import { NotAgain, Old } from "../parts/Old";
import { LeaseList } from "./LeasesView";
import type { SectionProps } from "./TableView";
import { Failed, Nothing, Skeleton } from "./TableViewStates";

export function TableLeases({ database, table, details }: SectionProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ["table", database, table, "leases"],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}/leases", {
          params: { path: { database, table } },
        }),
      ),
    refetchInterval: 10_000,
    enabled: details.has_primary_key !== false,
  });
  if (details.has_primary_key === false) {
    return (
      <Nothing title="Only tables with a primary key have leases">
        <p>A lease keeps KV snapshots, and a log table has none.</p>
      </Nothing>
    );
  }
  if (!data) {
    if (error) return <Failed what="The leases" error={error} onRetry={() => void refetch()} />;
    return <Skeleton what="the leases" />;
  }
  return (
    <>
      <NotAgain error={error} what="The leases" />
      {!details.old && <Old old={data.old} what="The leases" />}
      {data.note && (
        <p className="notice whole">
          <Commands text={data.note} />
        </p>
      )}
      {data.leases.length === 0 ? (
        <Nothing title="No lease holds a snapshot of this table">
          <p>
            <Link href="/leases">See all leases</Link>
          </p>
        </Nothing>
      ) : (
        <LeaseList leases={data.leases} nowMs={data.now_ms} />
      )}
    </>
  );
}
