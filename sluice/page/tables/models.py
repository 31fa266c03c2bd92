"""What the JSON API answers of one table: see `sluice.page.cluster.models`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from sluice.page.cluster.models import OLD, Link, Old, RecordedRound, Table


class TableDetails(BaseModel):
    """One table: its status, facts of its definition, and links.

    The facts of its definition are null, or empty, if the cluster was away before they were read.
    """

    table: Table
    old: Old | None = OLD
    is_tiered: bool = Field(default=True, description="Whether its tiering is enabled")
    how_to_enable: str | None = Field(
        default=None, description="The statements that enable its tiering; null: it is enabled"
    )
    has_primary_key: bool | None = None
    primary_key: list[str]
    partition_keys: list[str]
    bucket_count: int | None = None
    bucket_keys: list[str]
    freshness_ms: int | None = None
    created_ms: int | None = None
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
    old: Old | None = OLD
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
    old: Old | None = OLD
    read_ms: int = Field(
        description="When they were read: those who look at a table within 5 s share one read"
    )
    lake_snapshot_id: str | None
    total: int
    offset: int
    is_by_lag: bool = Field(
        default=True, description="Whether the largest lag of all buckets comes first"
    )
    splits: list[Split]


class LakeSnapshot(RecordedRound):
    """A lake snapshot, and the round that committed it."""

    lake_snapshot_id: str
    committed_ms: int | None = Field(default=None, description="When its round was reported")
    is_registered: bool = Field(default=False, description="Whether Fluss names this one")
    url: str | None = Field(default=None, description="Its page in the catalog of the lake")


class LakeSnapshots(BaseModel):
    """The lake snapshots that rounds committed, the newest first."""

    now_ms: int
    old: Old | None = OLD
    registered_snapshot_id: str | None = Field(default=None, description="The one that Fluss names")
    snapshots: list[LakeSnapshot]
    note: str = Field(description="What the list cannot have")
