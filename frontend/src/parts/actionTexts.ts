/** The actions of the page: which there are, and what each does and does not do. */
import type { Overview, Schemas, Table } from "../api/client";
import { bytes, counted, plural } from "../format";

/** What an action has to know of its table. */
type ActedTable = Pick<Table, "path" | "database" | "table"> &
  Partial<
    Pick<Table, "paused" | "failures" | "status" | "claimed_by" | "why_not_act" | "requested_ms">
  >;

export type TableActionKind = "tier" | "retry" | "pause" | "resume" | "compact";

/** An action that a user asks for. `table` has what its texts depend on. */
export type Action =
  | { kind: TableActionKind; table: ActedTable }
  | {
      kind: "drop";
      leaseId: string;
      holder?: string;
      holderKind?: Schemas["Lease"]["holder_kind"];
      freedBytes?: number | null;
    };

/** How the page acts in this cluster. */
export type Manner = Pick<Overview, "tier_now" | "is_fluss"> & Partial<Pick<Overview, "dag">>;

interface Words {
  /** On the button that asks. */
  label: string;
  /** The question of the dialog. */
  title: string;
  /** On the button that confirms. */
  confirm: string;
  /** While the server works. */
  doing: string;
  /** What happens and what does not: a paragraph each. */
  says: string[];
  isDangerous: boolean;
}

export const LABELS: Record<Action["kind"], string> = {
  tier: "Tier now",
  retry: "Retry",
  pause: "Pause",
  resume: "Resume",
  compact: "Request compaction",
  drop: "Drop lease",
};

/** What an action acts on. */
export function subjectOf(action: Action): string {
  return action.kind === "drop" ? action.leaseId : action.table.path;
}

/** The actions that change anything for a table in its state, the most useful first. */
export function actionsFor(table: ActedTable): TableActionKind[] {
  if (table.paused) return ["resume", "tier", ...retryIf(table)];
  return [...retryIf(table), "tier", "pause"];
}

function retryIf(table: ActedTable): TableActionKind[] {
  return (table.failures ?? 0) > 0 ? ["retry"] : [];
}

export function wordsOf(action: Action, manner: Manner): Words {
  const label = LABELS[action.kind];
  switch (action.kind) {
    case "tier":
      return {
        label,
        title: `Tier ${action.table.path} now?`,
        confirm: manner.tier_now === "run" ? "Start a run" : "Request a round",
        doing: manner.tier_now === "run" ? "Starting a run…" : "Requesting a round…",
        says: tierSays(action.table, manner),
        isDangerous: false,
      };
    case "retry":
      return {
        label,
        title: `Retry ${action.table.path}?`,
        confirm: label,
        doing: "Clearing the failures…",
        says: [
          `${failuresOf(action.table)}, so that the next round may start now. Retry once the ` +
            "cause is repaired: if the round fails again, the table waits again.",
          ...unlessPaused(manner),
        ],
        isDangerous: false,
      };
    case "pause":
      return {
        label,
        title: `Pause ${action.table.path}?`,
        confirm: label,
        doing: "Pausing…",
        says: [
          "No round of the table starts until it is resumed, also after a restart of the server. " +
            "Rows can still be written to it, and rows in the lake stay there.",
          "An Airflow task ends its round of the table; a round of `sluice tier` continues." +
            (manner.is_fluss
              ? " An Apache Fluss cluster has no pause: only Sluice's rounds honour it."
              : ""),
        ],
        isDangerous: false,
      };
    case "resume":
      return {
        label,
        title: `Resume ${action.table.path}?`,
        confirm: label,
        doing: "Resuming…",
        says: [
          "The pause ends, and the next round starts when the table is due. Its failures and its " +
            "last error stay until a round succeeds.",
          ...unlessPaused(manner),
        ],
        isDangerous: false,
      };
    case "compact":
      return {
        label,
        title: `Request a compaction of ${action.table.path}?`,
        confirm: label,
        doing: "Requesting a compaction…",
        says: [
          "The next round of the table compacts it in its own commit, also buckets without new " +
            "rows. That round takes longer. A request that is open already stays as it is.",
          ...(action.table.paused
            ? ["The table stays paused, and that round starts after it is resumed."]
            : []),
          ...unlessPaused(manner),
        ],
        isDangerous: false,
      };
    case "drop":
      return {
        label,
        title: `Drop the lease ${action.leaseId}?`,
        confirm: label,
        doing: "Dropping…",
        says: [
          `The server may then delete the snapshots of the lease${freedBy(action.freedBytes)}. ` +
            (action.holderKind === "run" || action.holderKind === "tier"
              ? "A round that still reads them fails, and the next one reads newer snapshots. "
              : "A reader that still uses the lease fails at its next renewal. ") +
            "This cannot be undone.",
          ...(manner.is_fluss
            ? ["An Apache Fluss cluster does not report whether the lease existed."]
            : []),
        ],
        isDangerous: true,
      };
  }
}

/** What an action does, in one sentence: the description of its button. */
export function describe(kind: Action["kind"], manner: Manner): string {
  switch (kind) {
    case "tier":
      return manner.tier_now === "run"
        ? "Starts a run of the DAG that tiers the table without waiting for its freshness."
        : "Requests a round of the table without waiting for its freshness.";
    case "retry":
      return "Clears the failures of the table, so that its next round may start now.";
    case "pause":
      return "Keeps new rounds of the table from starting until it is resumed.";
    case "resume":
      return "Ends the pause, so that the next round starts when the table is due.";
    case "compact":
      return "Requests that the next round of the table compacts its files.";
    case "drop":
      return "Drops the lease, so that the server may delete its snapshots.";
  }
}

/** `: that frees 25 kB` */
function freedBy(freed: number | null | undefined): string {
  if (freed == null) return "";
  return freed === 0
    ? ": that frees nothing, because others hold them, too"
    : `: that frees ${bytes(freed)}`;
}

function failuresOf(table: ActedTable): string {
  const failures = table.failures ?? 0;
  if (failures === 0) return "Failures of the table are cleared";
  return plural(
    failures,
    "The failure of the table is cleared",
    `The ${counted(failures, "failure")} of the table are cleared`,
  );
}

function tierSays(table: ActedTable, manner: Manner): string[] {
  const says = [
    manner.tier_now === "run"
      ? "A run of the DAG tiers the table without waiting for its freshness. Rows that are in " +
        "the lake are not copied again."
      : "A round is requested without waiting for the freshness: `sluice tier` or the next run " +
        "of the DAG starts it. Rows that are in the lake are not copied again.",
  ];
  if (table.paused) says.push("The table stays paused, and the round starts after it is resumed.");
  else if (table.status === "Tiering" || table.claimed_by) {
    says.push(
      manner.is_fluss
        ? "A round is under way. An Apache Fluss cluster refuses the request until it has ended."
        : "A round is under way. The requested one follows it.",
    );
  } else if (table.requested_ms != null) {
    says.push("A round of the table is requested already, and no worker has claimed it yet.");
  }
  return [...says, ...unlessPaused(manner, manner.tier_now === "run")];
}

/** @param isRun whether the action itself starts a run */
function unlessPaused({ dag }: Manner, isRun = false): string[] {
  if (!dag?.is_paused) return [];
  return [
    isRun
      ? `The DAG ${dag.dag_id} is paused: the run stays queued until somebody unpauses the DAG in Airflow.`
      : `The DAG ${dag.dag_id} is paused: it starts no run until somebody unpauses it in Airflow.`,
  ];
}
