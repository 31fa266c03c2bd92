"""What the JSON API answers of leases: see `sluice.page.cluster.models`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from sluice.page.cluster.models import OLD, Link, Old


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
    old: Old | None = OLD
    is_complete: bool
    note: str | None = Field(
        default=None, description="Where the list comes from, if it is not complete"
    )
    total: int = Field(default=0, description="Leases that are known; `leases` may have fewer")
    leases: list[Lease]


class LeaseToDrop(BaseModel):
    """Which lease to drop. Its id may be any text, so it is no part of an address."""

    lease_id: str = Field(min_length=1)
