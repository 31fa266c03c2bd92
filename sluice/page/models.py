"""What the JSON API of the page answers. FastAPI makes its OpenAPI description from these classes.

Times end in ``_ms`` and are epoch milliseconds, as do durations in milliseconds. Null: not known.
Ids of 64 bits are text, because a browser rounds large numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from sluice.page.recorded_models import RecordedRoundModel, RecordedStatusModel

if TYPE_CHECKING:  # mypy knows no class that is made at run time
    RecordedStatus = BaseModel
    RecordedRound = BaseModel
else:
    RecordedStatus = RecordedStatusModel
    RecordedRound = RecordedRoundModel

Health = Literal["failing", "late", "waiting", "paused", "tiering", "ok", "unknown"]
"""failing: the last round failed. late: the lake lacks rows older than 30 minutes, or no round has
succeeded for a day. waiting: due for an hour, and no worker has claimed it. paused: by a user.
tiering: a round is running. ok: none of these. unknown: the state cannot be read, or no round is
recorded."""

MaintenanceState = Literal["problem", "needs", "requested", "unknown", "ok"]
"""problem: something did not work in its last maintenance. needs: it needs something, as of the
last report. requested: a compaction is requested, and it needs nothing else. unknown: no report is
known. ok: none of these."""

MaintenanceSortKey = Literal[
    "attention",
    "table",
    "last_maintained",
    "last_compacted",
    "last_expired",
    "requested",
    "lake_files",
    "lake_bytes",
]

SortKey = Literal[
    "attention",
    "table",
    "health",
    "lag_rows",
    "lag",
    "last_tiered",
    "failures",
    "next_attempt",
    "lake_bytes",
    "lake_rows",
]


class RoundPoint(BaseModel):
    """A round, as a point of a sparkline."""

    ended_ms: int | None = None
    outcome: str | None = None
    rows_written: int | None = None
    lag_rows_after: int | None = None
    duration_ms: int | None = Field(default=None, description="From claim to report")


class Table(RecordedStatus):
    """A lake table: its status, and what follows from it."""

    path: str = Field(description="DATABASE.TABLE")
    database: str
    table: str
    health: Health
    stuck_since_ms: int | None = Field(
        default=None,
        description="failing: the end of the first failed round since the last success; where the"
        " history of rounds does not say it, the end of the last success, or of the last failure if"
        " there was none. late: when the oldest row that the lake lacks was written, or the end of"
        " the last success. waiting: when it became due. Null otherwise: nobody records when a"
        " table was paused",
    )
    why: str | None = Field(default=None, description="Why it is not ok: one line")
    status_read_ms: int = Field(description="When the status was read")
    lag_read_ms: int | None = Field(default=None, description="When the lag was read")
    rounds_shown: list[RoundPoint] = Field(
        default_factory=list, description="The newest rounds, the oldest first"
    )


class Reading(BaseModel):
    """How fresh an answer is: the cluster is read in the background."""

    now_ms: int = Field(description="The clock of the server that answers")
    read_ms: int | None = Field(
        default=None, description="When the statuses were read; null: not yet"
    )
    lags_read_ms: int | None = Field(
        default=None, description="When the oldest lag was read; null: at least one is not read yet"
    )
    lags_unread: int = Field(
        default=0,
        description="Lake tables whose lag cannot be read now, for example because a tablet server"
        " is out of reach",
    )
    tables_read: int = Field(default=0, description="Lake tables whose status has been read")
    is_complete: bool = Field(default=False, description="Whether every table was read once")
    error: str | None = Field(default=None, description="Why the last read failed, without secrets")


class Tables(BaseModel):
    """One page of the tables that match."""

    reading: Reading
    total: int = Field(description="Lake tables of the cluster")
    matched: int = Field(description="Those that match search and filters")
    offset: int
    databases: list[str] = Field(
        default_factory=list, description="Databases with lake tables, sorted"
    )
    tables: list[Table]
    are_rounds_read: bool = Field(
        default=True,
        description="Whether the rounds of these tables are the newest; if not, they are being read"
        " and the next answer has them",
    )


class Overview(BaseModel):
    """The cluster in numbers, and what this user may do."""

    reading: Reading
    cluster: str = Field(description="Address of the cluster, without secrets")
    version: str = Field(description="Version of Sluice")
    is_fluss: bool = Field(description="Whether it is an Apache Fluss cluster, and not embedded")
    user: str | None = Field(default=None, description="Who is logged in")
    may_act: bool = Field(description="Whether this user may tier, pause, retry and drop")
    why_not: str | None = Field(default=None, description="Why this user may not act")
    may_tier_now: bool = Field(description="Whether this user may also tier tables now")
    why_not_tier_now: str | None = Field(default=None, description="Why this user may not")
    tier_now: Literal["run", "request"] = Field(
        description="What tier now does: start a run of the DAG, or request a round of any worker"
    )
    total: int
    by_health: dict[Health, int]
    databases: list[str] = Field(
        default_factory=list, description="Databases with lake tables, sorted"
    )
    lag_rows: int | None = Field(
        default=None, description="Rows that the lake lacks, of all tables"
    )
    lake_bytes: int | None = Field(
        default=None, description="Bytes of all lake tables that are known"
    )
    lake_rows: int | None = Field(
        default=None, description="Rows in the data files of those tables, before deletes"
    )
    attention_total: int = Field(
        default=0, description="Tables that need a person: failing, late, waiting, or not readable"
    )
    attention: list[Table] = Field(
        default_factory=list,
        description="Tables that need a person, the worst first, at most 20",
    )
    pages: list[PageLink] = Field(
        default_factory=list, description="The pages of other DAGs, if there are several"
    )
    dag: DagState | None = Field(
        default=None, description="The DAG that tiers; null without Airflow"
    )


class PageLink(BaseModel):
    """The page of another DAG that tiers tables."""

    name: str
    url: str
    is_this: bool = False


class DagState(BaseModel):
    """The DAG that tiers these tables."""

    dag_id: str
    url: str
    is_paused: bool | None = None
    schedule: str | None = None
    last_run_state: str | None = None
    last_run_ms: int | None = None
    last_run_url: str | None = None


class Link(BaseModel):
    """A link to another page."""

    name: str
    url: str


class TableDetails(BaseModel):
    """One table: its status, facts of its definition, and links."""

    table: Table
    is_tiered: bool = Field(default=True, description="Whether its tiering is enabled")
    how_to_enable: str | None = Field(
        default=None, description="The statements that enable its tiering; null: it is enabled"
    )
    has_primary_key: bool
    primary_key: list[str]
    partition_keys: list[str]
    bucket_count: int
    bucket_keys: list[str]
    freshness_ms: int
    created_ms: int
    columns: list[Column]
    properties: dict[str, str] = Field(description="Its options, without secrets")
    damage: list[str] = Field(
        default_factory=list,
        description="What the disk of an embedded server has damaged, by bucket, and what to do",
    )
    links: list[Link]


class Column(BaseModel):
    name: str
    type: str
    comment: str | None = None


class Round(RecordedRound):
    """One ended round of a table, with links."""

    duration_ms: int | None = Field(default=None, description="From claim to report")
    links: list[Link] = Field(
        default_factory=list, description="Its task instance and its Spark application"
    )


class Rounds(BaseModel):
    """The newest rounds of a table, the newest first."""

    now_ms: int
    kept: int = Field(description="Rounds that are kept of a table")
    rounds: list[Round]


class Split(BaseModel):
    """One bucket: what the next round would copy."""

    partition: str | None = None
    bucket: int
    tiered_offset: int | None = Field(
        default=None, description="Its end in the lake; null: never tiered"
    )
    start_offset: int | None = Field(
        default=None, description="Start of its log, if it was never tiered and has rows"
    )
    end_offset: int | None = Field(default=None, description="End of its log")
    lag_rows: int | None = Field(
        default=None, description="Log offsets missing in the lake; expired ones do not count"
    )


class Splits(BaseModel):
    """The buckets of a table, the largest lag first.

    Of a table with very many partitions, the newest partition comes first.
    """

    now_ms: int
    lake_snapshot_id: str | None
    total: int
    offset: int
    is_by_lag: bool = Field(
        default=True, description="Whether the largest lag of all buckets comes first"
    )
    splits: list[Split]


class LakeSnapshot(BaseModel):
    """A lake snapshot that a round committed."""

    lake_snapshot_id: str
    committed_ms: int | None = Field(default=None, description="When its round was reported")
    round_number: int | None = None
    rows_written: int | None = None
    keys_deleted: int | None = None
    deletes_as: str | None = Field(default=None, description="How the round deleted keys")
    files_written: int | None = None
    bytes_written: int | None = None
    files_compacted: int | None = Field(
        default=None, description="Data files that its compaction replaced"
    )
    compacted: str | None = Field(default=None, description="What it compacted, in words")
    snapshots_expired: int | None = Field(
        default=None, description="Older snapshots that expired after its commit"
    )
    files_expired: int | None = Field(default=None, description="Files that went with them")
    lake_rows: int | None = Field(
        default=None, description="Rows in the data files of the lake table then, before deletes"
    )
    lake_files: int | None = Field(default=None, description="Its data files then")
    lake_bytes: int | None = Field(
        default=None, description="Bytes of its data and delete files then"
    )
    is_registered: bool = Field(default=False, description="Whether Fluss names this one")
    url: str | None = Field(default=None, description="Its page in the catalog of the lake")


class LakeSnapshots(BaseModel):
    """The lake snapshots that rounds committed, the newest first."""

    now_ms: int
    registered_snapshot_id: str | None = Field(default=None, description="The one that Fluss names")
    snapshots: list[LakeSnapshot]
    note: str = Field(description="What the list cannot have")


class LeasedTable(BaseModel):
    """What a lease holds of one table."""

    path: str | None = Field(default=None, description="Null: the table was dropped")
    table_id: int | None = None
    buckets: int | None = None
    held_bytes: int | None = Field(default=None, description="Bytes of its leased KV snapshots")
    freed_bytes: int | None = Field(
        default=None, description="Those that only this lease keeps: a drop frees them"
    )
    oldest_snapshot_id: str | None = None


class Lease(BaseModel):
    """A lease on KV snapshots. Null: the cluster does not say."""

    lease_id: str
    owner: str | None = Field(default=None, description="The user who made it")
    holder: str = Field(description="What holds it, in words")
    holder_kind: Literal["run", "tier", "reader"] = Field(
        description="run: a run of the DAG. tier: a round of `sluice tier` or `sluice repair`."
        " reader: any other client"
    )
    deployment_id: str | None = Field(default=None, description="Of a run: the id of its Airflow")
    dag_id: str | None = Field(default=None, description="Of a run, if its work folder is known")
    run_id: str | None = None
    installation_id: str | None = Field(
        default=None, description="Of `sluice tier`: who runs it, and on which machine"
    )
    buckets: int | None = None
    held_bytes: int | None = Field(default=None, description="Bytes of its KV snapshots")
    freed_bytes: int | None = Field(
        default=None, description="Those that only this lease keeps: a drop frees them"
    )
    created_ms: int | None = None
    renewed_ms: int | None = None
    expires_ms: int | None = Field(
        default=None, description="When it expires, unless it is renewed until then"
    )
    table_count: int | None = Field(
        default=None, description="Tables that it holds; `tables` may have fewer of them"
    )
    tables: list[LeasedTable] = Field(description="The largest first")
    links: list[Link] = Field(default_factory=list)


class Leases(BaseModel):
    """All leases, or those that are known where the cluster lists none."""

    now_ms: int
    is_complete: bool
    note: str | None = Field(
        default=None, description="Where the list comes from, if it is not complete"
    )
    total: int = Field(default=0, description="Leases that are known; `leases` may have fewer")
    leases: list[Lease]


class LeaseToDrop(BaseModel):
    """Which lease to drop. Its id may be any text, so it is no part of an address."""

    lease_id: str = Field(min_length=1)


class MaintainedTable(BaseModel):
    """What maintenance says of one table. Null: not known."""

    path: str = Field(description="DATABASE.TABLE, or a pattern of a run that matches no table")
    state: MaintenanceState
    is_known: bool = Field(default=True, description="Whether the cluster has this lake table")
    needs: list[str] = Field(
        default_factory=list,
        description="What it needs, as of the newest report: after its maintenance, if that was"
        " no dry run",
    )
    reported_ms: int | None = Field(default=None, description="When the run of that report began")
    reported_by: str | None = Field(default=None, description="Folder of that run")
    was_applied: bool | None = Field(
        default=None, description="Whether that run maintained the table; false: a dry run"
    )
    problems: list[str] = Field(
        default_factory=list, description="What did not work in that run, whole, without secrets"
    )
    retryable: bool | None = Field(
        default=None, description="Whether another run may have no problem; null: there is none"
    )
    line: str | None = Field(default=None, description="The whole report as one line")
    last_maintained_ms: int | None = Field(
        default=None, description="When the last run began that was no dry run"
    )
    maintained_by: str | None = Field(default=None, description="Folder of that run")
    done: list[str] = Field(default_factory=list, description="What that run did")
    gains: list[str] = Field(
        default_factory=list, description="What a scan has to read less since that run"
    )
    compaction_requested_ms: int | None = Field(
        default=None, description="Since when a compaction is requested; null: none is"
    )
    next_round: str | None = Field(
        default=None, description="What the next round does besides copying"
    )
    next_attempt_ms: int | None = Field(default=None, description="When it may begin")
    paused: bool | None = None
    are_rounds_read: bool = Field(
        default=False, description="Whether the history of its rounds has been read"
    )
    last_compacted_ms: int | None = Field(
        default=None, description="End of the last round that compacted files"
    )
    last_compaction: str | None = Field(default=None, description="What that round compacted")
    last_compaction_round: int | None = None
    files_compacted: int | None = Field(default=None, description="Data files that it replaced")
    compaction_read_bytes: int | None = None
    compaction_written_bytes: int | None = None
    compaction_ms: int | None = Field(default=None, description="So much longer that round took")
    left_out: str | None = Field(
        default=None, description="Why a later round compacted nothing, if it says so"
    )
    left_out_ms: int | None = None
    request_completed_ms: int | None = Field(
        default=None, description="End of the last round that completed a requested compaction"
    )
    last_expired_ms: int | None = Field(
        default=None, description="End of the last round that expired snapshots"
    )
    snapshots_expired: int | None = Field(default=None, description="By that round")
    files_expired: int | None = Field(default=None, description="By that round")
    deletes_as: str | None = Field(
        default=None, description="How the last round that deleted keys did so"
    )
    has_equality_deletes: bool = Field(
        default=False, description="Whether that round wrote equality deletes"
    )
    lake_files: int | None = None
    lake_bytes: int | None = None


class MaintenanceRunModel(BaseModel):
    """A run that maintained tables, or only looked at them."""

    folder: str = Field(description="Its folder below the work folder: names the run")
    by: str = Field(description="Who ran it, for people")
    dag_id: str | None = Field(default=None, description="Null: no run of Airflow")
    run_id: str | None = None
    task_id: str | None = None
    url: str | None = Field(default=None, description="The task instance in Airflow")
    began_ms: int
    ended_ms: int | None = None
    state: Literal["running", "ended", "failed", "lost", "unreported"] = Field(
        description="running: it has reported no end. ended: each of its tables has a report."
        " failed: it ended before its last table, and says why. lost: it ended and reports no end,"
        " or it wrote nothing for 6 hours. unreported: it has ended, and its reports are not there"
    )
    applied: bool = Field(description="False: a dry run, which changes nothing")
    tables: int = Field(description="Tables with a report")
    needed: int = Field(description="Those that needed something before it")
    problems: int = Field(description="Those of which something did not work")
    numbers: dict[str, int] = Field(
        description="What was done to all of them: equality_files_removed, positions,"
        " snapshots_expired, files_expired, manifests_merged, orphans_removed, orphan_bytes,"
        " compactions_requested"
    )
    error: str | None = Field(default=None, description="Why it ended before its last table")
    at: str | None = Field(default=None, description="The table that it was at, if it has no end")
    last_sign_ms: int | None = Field(default=None, description="When it wrote its newest file")
    problem: str | None = Field(default=None, description="Why its reports cannot be read")


class Maintenance(BaseModel):
    """What the last runs of the maintenance did, and what rounds compacted and expired."""

    reading: Reading
    runs_read_ms: int | None = Field(
        default=None, description="When the reports of runs were read; null: not yet, or never"
    )
    rounds_read_ms: int | None = Field(
        default=None, description="When the histories of rounds were read"
    )
    are_rounds_read: bool = Field(
        default=False, description="Whether that was done for all tables; if not, it goes on"
    )
    error: str | None = Field(default=None, description="Why the histories cannot be read")
    runs: list[MaintenanceRunModel] = Field(description="The newest runs, the newest first")
    last_run_ms: int | None = Field(default=None, description="When the last ended run began")
    last_run_url: str | None = None
    note: str | None = Field(default=None, description="What is not shown, and why")
    total: int = Field(description="Tables, and patterns of runs that match none")
    matched: int = Field(description="Those that match search and filters")
    by_state: dict[MaintenanceState, int]
    databases: list[str]
    offset: int
    tables: list[MaintainedTable]


class Answer(BaseModel):
    """What an action did."""

    message: str
    url: str | None = Field(default=None, description="The run that it started")


class Problem(BaseModel):
    """Why a request failed: one line that names what to do, without secrets."""

    error: str = Field(description="The class of the error")
    message: str
