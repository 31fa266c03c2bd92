"""What the JSON API answers of the cluster and its tables, and what all its answers have in common.

FastAPI makes the OpenAPI description from these classes and those of the other ``models``.
Times end in ``_ms`` and are epoch milliseconds, as do durations in milliseconds. Null: not known.
Ids of 64 bits are text, because a browser rounds large numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, create_model

from sluice.model import TieringRound, TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.model.types import TypeRoot
from sluice.page.cluster.masked import masked
from sluice.page.cluster.round_cache import RoundPoint


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


class Link(BaseModel):
    """A link to another page."""

    name: str
    url: str


class Old(BaseModel):
    """That an answer was read earlier: it was not read now."""

    read_ms: int = Field(description="When it was read")
    why: str = Field(description="Why it was not read now, without secrets")


OLD = Field(default=None, description="When it was read, if not now, and why; null: now")


class Answer(BaseModel):
    """What an action did."""

    message: str
    url: str | None = Field(default=None, description="The run that it started")
    changed_ms: int | None = Field(
        default=None,
        description="When the table had been changed: for the header X-Sluice-Changed",
    )


class Problem(BaseModel):
    """Why a request failed: one line that names what to do, without secrets."""

    error: str = Field(description="The class of the error")
    message: str


_TYPES: dict[TypeRoot, type] = {
    TypeRoot.STRING: str,
    TypeRoot.BOOLEAN: bool,
    TypeRoot.INT: int,
    TypeRoot.BIGINT: int,
    TypeRoot.TIMESTAMP_LTZ: int,
}


def is_wide_id(entry: RecordField) -> bool:
    """Whether a field is an id of 64 bits, which a browser's numbers would round."""
    return entry.name.endswith("snapshot_id")


def _model_of(name: str, recorded: type, doc: str) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for entry in fields_of(recorded):
        kind = str if is_wide_id(entry) else _TYPES[entry.data_type.root]
        unit = " (epoch milliseconds)" if entry.is_time else ""
        comment = entry.comment + (" (milliseconds)" if entry.is_duration else unit)
        if entry.data_type.nullable:
            fields[entry.name] = (kind | None, Field(default=None, description=comment))
        else:
            fields[entry.name] = (kind, Field(description=comment))
    return create_model(name, __doc__=doc, **fields)


if TYPE_CHECKING:  # mypy knows no class that is made at run time
    RecordedStatus = BaseModel
    RecordedRound = BaseModel
else:
    RecordedStatus = _model_of("RecordedStatus", TieringStatus, "The tiering status of a table.")
    RecordedRound = _model_of("Round", TieringRound, "One ended round. Null: not known.")


def recorded_values(record: object) -> dict[str, Any]:
    """The described fields of a record by name; 64-bit ids as text. Texts have no secrets."""
    values: dict[str, Any] = {}
    for entry in fields_of(type(record)):
        value = getattr(record, entry.name)
        if isinstance(value, str):
            value = masked(value)
        values[entry.name] = str(value) if is_wide_id(entry) and value is not None else value
    return values


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
