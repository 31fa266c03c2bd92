/** The newest rounds of a table: charts, and a list with every value. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, dataOf, type Round } from "../api/client";
import { REFRESH_MS } from "../api/queries";
import { RoundCharts } from "../charts/RoundCharts";
import { oldestFirst } from "../charts/rounds";
import type { XMode } from "../charts/xAxis";
import { useNow } from "../clock";
import { counted } from "../format";
import { NotAgain, Old } from "../parts/Old";
import type { SectionProps } from "./TableView";
import { useAddress } from "./TableViewAddress";
import { RoundList, roundKey } from "./TableViewRoundList";
import { Failed, Nothing, Skeleton } from "./TableViewStates";

export function RoundsSection({ database, table, details }: SectionProps) {
  const [params, change] = useAddress();
  const [picked, setPicked] = useState<string | null>(null);
  const now = useNow();
  const { data, error, refetch } = useQuery({
    queryKey: ["table", database, table, "rounds"],
    queryFn: () =>
      dataOf(
        api.GET("/api/v1/tables/{database}/{table}/rounds", {
          params: { path: { database, table } },
        }),
      ),
    refetchInterval: REFRESH_MS,
  });
  const rounds = useMemo(() => oldestFirst(data?.rounds ?? []), [data]);
  if (!data) {
    if (error) return <Failed what="The rounds" error={error} onRetry={() => void refetch()} />;
    return <Skeleton what="the rounds" lines={10} />;
  }
  if (rounds.length === 0) {
    return (
      <Nothing title="No round of this table is recorded yet">
        <p>
          <code>sluice tier</code> and the DAG record one at its end.
        </p>
      </Nothing>
    );
  }
  const at = rounds.findIndex((each) => roundKey(each) === picked);
  const index = at < 0 ? rounds.length - 1 : at;
  const byHand = params.get("x");
  const mode: XMode | null = byHand === "time" || byHand === "round" ? byHand : null;
  return (
    <>
      <NotAgain error={error} what="The rounds" />
      {!details.old && <Old old={data.old} what="The rounds" />}
      <RoundCharts
        rounds={rounds}
        nowMs={Math.max(now, data.now_ms)}
        mode={mode}
        onMode={(chosen) => change({ x: chosen })}
        picked={index}
        lagRows={details.table.lag_rows}
        onPick={(i) => setPicked(keyAt(rounds, i))}
      />
      <h2 className="section-title">
        {counted(data.rounds.length, "round")}
        <span className="quiet"> the newest first; {data.kept} are kept</span>
      </h2>
      <RoundList rounds={data.rounds} nowMs={now} picked={roundKey(rounds[index]!)} />
    </>
  );
}

/** Null at the newest: then the cursor follows new rounds. */
function keyAt(rounds: Round[], i: number): string | null {
  return i >= rounds.length - 1 ? null : roundKey(rounds[i]!);
}
