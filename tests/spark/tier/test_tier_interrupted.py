"""What `sluice tier` prints when Ctrl-C or SIGTERM ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client.tiering.tiering import TieringClient
from sluice.errors import LakeNotWritable
from sluice.model import Claim, Reason
from tests.spark.conftest import STOCK, LocalStock

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(stock: LocalStock) -> LocalStock:
    stock.create()
    stock.put({key: key for key in range(20)})
    return stock


@pytest.fixture
def tier(
    rows: LocalStock, act_at: Callable[..., None]
) -> Callable[[str, Callable[[], object]], Result]:
    """Runs the command, and does something once when a phase of its round begins."""

    def run(phase: str, act: Callable[[], object]) -> Result:
        act_at(phase, act)
        lake, address = str(rows.site.warehouse), rows.client.config.bootstrap
        words = ["tier", str(STOCK), "--warehouse", lake, "--bootstrap", address]
        return CliRunner().invoke(cli, words)

    return run


SIGNALS = pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        pytest.param(signal.SIGTERM, "SIGTERM", 143, marks=pytest.mark.long),
        (signal.SIGINT, "Ctrl-C", 130),
    ],
)


@SIGNALS
def test_a_stop_before_the_commit_says_that_nothing_was_committed(
    tier: Callable[..., Result], number: signal.Signals, name: str, code: int
) -> None:
    done = tier("copy", lambda: signal.raise_signal(number))
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr == (
        f"\nsluice: stopped by {name}: nothing was committed, {STOCK} is released and due at once\n"
    )


@SIGNALS
def test_a_stop_during_the_commit_prints_the_result_first(
    tier: Callable[..., Result], number: signal.Signals, name: str, code: int
) -> None:
    done = tier("lake_commit", lambda: signal.raise_signal(number))
    assert done.exit_code == code
    assert done.stdout.startswith(f"{STOCK}: committed to the lake: 20 rows, ")
    assert done.stderr == f"\nsluice: stopped by {name} after the commit\n"


def test_a_second_ctrl_c_says_that_the_commit_may_have_happened(
    tier: Callable[..., Result],
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    done = tier("fluss_commit", twice)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == (
        "\nsluice: stopped by Ctrl-C during the commit: the next round finds out whether the lake"
        f" has the rows, {STOCK} is released and due at once\n"
    )


@pytest.mark.parametrize("step", ["claim", pytest.param("report", marks=pytest.mark.long)])
def test_a_second_ctrl_c_interrupts_neither_claim_nor_report(
    tier: Callable[..., Result], rows: LocalStock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    release = TieringClient.release

    def releasing(
        client: TieringClient, claim: Claim, reason: Reason, *, stopped: bool = False
    ) -> None:
        if step == "report":
            twice()
        release(client, claim, reason, stopped=stopped)

    monkeypatch.setattr(TieringClient, "release", releasing)
    if step == "claim":
        monkeypatch.setattr(
            "sluice.driver.local.failpoint", lambda name: twice() if "claim.after" in name else None
        )
    done = tier("copy", lambda: signal.raise_signal(signal.SIGINT))
    assert (done.exit_code, done.stderr) == (
        130,
        f"\nsluice: stopped by Ctrl-C: nothing was committed, {STOCK} is released and due at"
        " once\n",
    )
    [found] = rows.client.statuses.list(STOCK)
    assert (found.status, found.failures) == ("Pending", 0)


def test_a_stop_of_a_round_that_then_fails_prints_the_failure(tier: Callable[..., Result]) -> None:
    def stopped_and_failed() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise LakeNotWritable("the disk is full")

    done = tier("lake_commit", stopped_and_failed)
    assert (done.exit_code, done.stdout) == (143, "")
    assert done.stderr == (
        "\nsluice: stopped by SIGTERM: the round failed: LakeNotWritable: the disk is full\n"
    )


@pytest.mark.parametrize(
    "phase", [*(pytest.param(p, marks=pytest.mark.long) for p in ("plan", "prepare")), "copy"]
)
def test_a_dropped_table_has_no_next_round(
    tier: Callable[..., Result], rows: LocalStock, phase: str
) -> None:
    done = tier(phase, lambda: rows.client.admin.drop_table(STOCK))
    line, note = done.stdout.splitlines()
    assert done.exit_code == 3
    assert line.startswith(
        f"{STOCK}: nothing was committed: the table was dropped during the round, "
    )
    assert note == f"note: table {STOCK} with id 0 was dropped"


def test_a_stop_after_the_table_was_dropped_prints_the_result_first(
    tier: Callable[..., Result], rows: LocalStock
) -> None:
    def dropped_and_stopped() -> None:
        rows.client.admin.drop_table(STOCK)
        signal.raise_signal(signal.SIGTERM)

    done = tier("fluss_commit", dropped_and_stopped)
    assert done.exit_code == 143
    assert done.stdout.startswith(
        f"{STOCK}: committed to the lake; the table was dropped before the registration with Fluss,"
    )
    assert done.stderr == "\nsluice: stopped by SIGTERM after the round\n"
