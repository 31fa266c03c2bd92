"""What `sluice repair` prints if a signal or a drop of the table ends its round."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.driver import repairing
from sluice.model import TablePath
from sluice.model import types as t
from tests.spark.conftest import Site
from tests.spark.tier.test_tier_local import tier

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


@pytest.fixture
def repaired_at(
    site: Site, monkeypatch: pytest.MonkeyPatch, act_at: Callable[..., None]
) -> Callable[[str, Callable[[], object]], Result]:
    """Tiers again what a lost lake table had, and does something once when a phase begins."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    site.append(PATH, pa.table({"id": range(10)}))
    tier(site)
    shutil.rmtree(site.warehouse / "shop" / "orders")
    monkeypatch.setattr(repairing, "checked_jvm", lambda *_: nullcontext(site.jvm))

    def run(phase: str, act: Callable[[], object]) -> Result:
        act_at(phase, act)
        place = ["--warehouse", str(site.warehouse), "--bootstrap", site.config.client.bootstrap]
        return CliRunner().invoke(cli, ["repair", str(PATH), "--by", "retier", "--yes", *place])

    return run


def test_a_stop_during_the_commit_prints_the_result_first(
    repaired_at: Callable[..., Result], site: Site
) -> None:
    done = repaired_at("copy", lambda: signal.raise_signal(signal.SIGINT))
    assert (done.exit_code, done.stdout) == (130, "")
    assert "sluice: stopped by Ctrl-C: nothing was committed, shop.orders is rel" in done.stderr
    done = repaired_at("lake_commit", lambda: signal.raise_signal(signal.SIGTERM))
    first, second, _ = done.stdout.splitlines()
    assert first == "shop.orders: done: copied the missing offsets from the logs again"
    assert second.startswith("the round: committed to the lake, 10 rows, lake snapshot id ")
    assert done.stderr.endswith("sluice: stopped by SIGTERM after the commit\n")
    assert done.exit_code == 143
    assert repairing.diagnose_table(site.config, PATH, site.jvm).healthy


def test_a_table_that_is_dropped_meanwhile_is_not_repaired_again(
    repaired_at: Callable[..., Result], site: Site
) -> None:
    done = repaired_at("copy", lambda: site.client.admin.drop_table(PATH))
    first, note = done.stdout.splitlines()
    assert done.exit_code == 3, done.output
    words = "not repaired: nothing was committed: the table was dropped during the round"
    assert first == f"shop.orders: {words}"
    assert note == "note: table shop.orders with id 0 was dropped"


def test_a_repair_of_a_table_that_is_not_tiered_does_not_wait(
    repaired_at: Callable[..., Result], site: Site
) -> None:
    site.client.admin.set_options(PATH, {"table.datalake.enabled": "false"})
    begun_s = time.monotonic()
    done = repaired_at("copy", lambda: None)
    assert time.monotonic() - begun_s < 60  # --wait is three minutes
    assert done.exit_code == 1
    assert "table shop.orders is not tiered: in Flink SQL, ALTER TABLE" in done.stderr
