"""The time limit of a try of the tier task, by a clock that the test owns."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sluice.errors import TierTimedOut
from sluice.rounds.records.copy_size import CopySize
from sluice.rounds.records.json_files import write_json
from sluice_airflow.tier.time_limit import TimeLimit
from tests.docs.blocks import claimed_blocks

HOUR_S = 3600.0


class Try:
    """A limit of one hour, the time since the try began, and what the limit reported."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"file://{folder}/size-a1.json"
        self.now_s = 1_000_000.0
        self.reached: list[TierTimedOut] = []
        self.limit = TimeLimit(HOUR_S, self.uri, self.reached.append, lambda: self.now_s)

    def after(self, seconds: float) -> float | None:
        """The answer of a check at that time of the try."""
        self.now_s = 1_000_000.0 + seconds
        return self.limit.check()


@pytest.fixture
def one(tmp_path: Path) -> Try:
    return Try(tmp_path)


def test_a_hanging_try_without_kv_snapshots_ends_at_the_base_limit(one: Try) -> None:
    assert one.after(0) == HOUR_S
    assert one.after(3599) == 1
    assert one.reached == []
    assert one.after(3600) is None
    [error] = one.reached
    assert error.retryable
    assert str(error) == (
        "this try took longer than 3600 s (tier_timeout_seconds); raise tier_timeout_seconds, an"
        " option of section sluice and an argument of the DAG file, if the driver was still working"
    )


def test_the_page_shows_the_line_of_the_log(one: Try, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write_json(one.uri, CopySize(10_800_000_000).to_json())
    one.after(3600)
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    assert shown.content.strip() in caplog.text


def test_kv_snapshots_scans_and_logs_extend_the_limit(
    one: Try, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert one.after(3000) == 600
    write_json(one.uri, CopySize(10_800_000_000, 1_000_000, 300.0).to_json())
    assert one.after(3600) == 5800
    parts = (
        "9400 s: 3600 s (tier_timeout_seconds) and 5400 s for 10.8 GB of KV snapshots at 2 MB/s"
        " and 100 s for at most 1000000 rows of scans at 10000 rows/s and 300 s for the log"
    )
    assert f"this try may take {parts}" in caplog.text
    assert one.after(9399) == 1
    assert one.reached == []
    assert one.after(9400) is None
    assert f"this try took longer than {parts}; raise tier_timeout_seconds" in str(one.reached[0])


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2}', '{"version": 1}'])
def test_a_size_that_cannot_be_read_extends_nothing(
    one: Try, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path(one.uri.removeprefix("file://")).write_text(content)
    assert one.after(3600) is None
    assert len(one.reached) == 1
    assert f"cannot read {one.uri}" in caplog.text


def test_an_error_of_a_file_system_does_not_end_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some file systems raise errors of their own. The thread would end without a word."""

    def refuse(*_: object) -> None:
        raise RuntimeError("away: password=planted")

    monkeypatch.setattr("sluice.storage.fsspec_file_system", refuse)
    now_s = [0.0]
    reached: list[TierTimedOut] = []
    uri = f"file://{tmp_path}/size-a1.json"
    limit = TimeLimit(HOUR_S, uri, reached.append, lambda: now_s[0])
    now_s[0] = HOUR_S
    assert limit.check() is None
    assert len(reached) == 1
    assert "size-a1.json: away" in caplog.text
    assert "planted" not in caplog.text


def test_without_a_limit_nothing_is_reached(one: Try) -> None:
    limit = TimeLimit(0, one.uri, one.reached.append, lambda: one.now_s)
    one.now_s += 100 * HOUR_S
    assert limit.check() is None
    assert one.reached == []
