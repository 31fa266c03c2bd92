"""Plans and packs of a site's tables, as acquire_lease and the tier task write them."""

from __future__ import annotations

import pyarrow as pa

from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.packs import PackFile, pack_uri
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from tests.spark.conftest import Site

LEASE = "sluice-lease"


def table(site: Site, name: str, rows: int, buckets: int = 2) -> TablePath:
    """A log table with some rows in every bucket."""
    path = TablePath("shop", name)
    site.create(path, {"id": t.BIGINT}, bucket_count=buckets, bucket_keys=("id",))
    site.append(path, pa.table({"id": pa.array(range(rows), pa.int64())}))
    return path


def plan(site: Site, path: TablePath) -> str:
    """Claims a table and writes its plan. Returns the plan's address."""
    claim = site.claim(path)
    uri = plan_uri(site.work_uri, LEASE, claim)
    write_json(uri, PlanFile(claim, LEASE, site.config.client.bootstrap).to_json())
    return uri


def pack(site: Site, *plans: str) -> str:
    """Writes a pack of plans. Returns its address."""
    uri = pack_uri(site.work_uri, LEASE, "a1", 0)
    write_json(uri, PackFile(plans).to_json())
    return uri
