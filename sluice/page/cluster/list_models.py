"""What the JSON API answers of all lake tables, and of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from sluice.page.cluster.models import Link, Reading
from sluice.page.cluster.recorded_models import RecordedStatusModel
from sluice.page.cluster.round_cache import RoundPoint

if TYPE_CHECKING:  # mypy knows no class that is made at run time
    RecordedStatus = BaseModel
else:
    RecordedStatus = RecordedStatusModel


Health = Literal["failing", "late", "waiting", "new", "paused", "tiering", "ok", "unknown"]
"""failing: the last round failed. late: the lake lacks rows older than 30 minutes, its round has
run for so long, or none has succeeded for a day. waiting: due for an hour, and no worker has
claimed it. new: no round has tiered it yet. paused: by a user. tiering: a round is running. ok:
none of these. unknown: the state cannot be read, or no round of Sluice is recorded, though the lake
may have the table."""

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


class TieredBy(BaseModel):
    """Who tiers a table now."""

    name: str = Field(description="The run of a DAG, or the process, in words")
    is_run: bool = Field(default=False, description="Whether it is the run of a DAG")
    links: list[Link] = Field(default_factory=list, description="The run's page")


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
    why_not_act: str | None = Field(
        default=None, description="Why this user may not act on it here; null: they may"
    )
    tiered_by: TieredBy | None = Field(
        default=None, description="Who tiers it now; null: nobody, or nobody knows"
    )
    status_read_ms: int = Field(description="When the status was read")
    lag_read_ms: int | None = Field(default=None, description="When the lag was read")
    rounds_shown: list[RoundPoint] = Field(
        default_factory=list, description="The newest rounds, the oldest first"
    )


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
    are_rounds_read: bool = Field(
        default=True, description="Whether their rounds are the newest, as in `Tables`"
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
