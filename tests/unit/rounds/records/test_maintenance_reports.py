"""What a driver that maintains tables leaves in the work folder, also one that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import UnknownFileVersion
from sluice.model import Reason
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.maintenance import (
    MaintenanceFiles,
    MaintenanceRequest,
    TableReport,
    read_outcome,
    read_reports,
    request_uri,
)
from sluice.rounds.upkeep.conversion import Conversion
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, report_line, table_report

RUN = "sluice-run"


@pytest.fixture
def work(tmp_path: Path) -> str:
    return f"file://{tmp_path}/work"


def files_of(work: str, attempt: str) -> MaintenanceFiles:
    files = MaintenanceFiles(request_uri(work, RUN, attempt))
    request = MaintenanceRequest("grpc://x:1", ("shop.*",), done=("shop.z",))
    write_json(files.request, request.to_json())
    assert files.read_request() == request
    return files


def report(name: str, error: str = "") -> TableReport:
    return table_report(MaintenanceReport(name, error=error), applied=True)


def test_a_driver_that_ends(work: str) -> None:
    files = files_of(work, "a")
    reports = (report("shop.b"), report("shop.a", "gone"))
    for one in reports:
        files.begin(one.table)
        files.add(one)
    files.end()
    outcome = read_outcome(files.request)
    assert (outcome.has_ended, outcome.error) == (True, None)
    assert [one.to_json() for one in outcome.reports] == [one.to_json() for one in reports]


def test_a_driver_that_is_killed_has_told_where_it_was(work: str) -> None:
    files = files_of(work, "a")
    assert read_outcome(files.request).running == ""
    files.begin("shop.a")
    files.add(report("shop.a"))
    assert read_outcome(files.request).running == "", "killed between two tables"
    files.begin("shop.b")
    outcome = read_outcome(files.request)
    assert ([one.table for one in outcome.reports], outcome.running) == (["shop.a"], "shop.b")
    assert not outcome.has_ended
    again = files_of(work, "b")
    again.add(report("shop.b"))
    assert [one.table for one in read_outcome(again.request).reports] == ["shop.b"]
    assert {one.table for one in read_reports(work, RUN)} == {"shop.a", "shop.b"}


def test_a_driver_that_gives_up_says_why(work: str) -> None:
    files = files_of(work, "a")
    why = Reason("NetworkError", "no coordinator", "refused", retryable=True)
    files.end(why)
    assert read_outcome(files.request).error == why


def test_files_of_another_version_or_none(work: str) -> None:
    files = MaintenanceFiles(request_uri(work, RUN, "a"))
    with pytest.raises(UnknownFileVersion, match="Airflow and this driver must share work_uri"):
        files.read_request()
    write_json(files.request, {"version": 9})
    with pytest.raises(UnknownFileVersion, match="version 9.*install the same Sluice"):
        files.read_request()


def test_a_line_says_what_was_needed_done_and_gained() -> None:
    before = TableHealth(
        equality_files=4,
        data_manifests=22,
        small_data_manifests=22,
        snapshots=9,
        metadata_bytes=9_000,
    )
    after = TableHealth(data_manifests=1, snapshots=2, metadata_bytes=2_000)
    found = MaintenanceReport(
        "shop.stock",
        before,
        after,
        Conversion(files_removed=4, rows=16),
        snapshots_expired=7,
        files_expired=1,
        manifests_merged=21,
        orphans_removed=2,
        orphan_bytes=500,
        notes=["could not sleep"],
    )
    needs = (
        "4 equality delete files: PyIceberg, polars and Snowflake refuse the table; 22 small"
        " manifests of data files: each scan reads them"
    )
    assert report_line(found, applied=True) == (
        f"shop.stock: {needs}; done: 4 equality delete files became 16 positions, 7 snapshots"
        " expired, 1 file deleted, manifests merged: 21 fewer, 2 orphan files deleted,"
        " 500 bytes; gained: 4 -> 0 files of equality deletes, 22 -> 1 manifests, 9 -> 2 snapshots,"
        " 9.0 kB -> 2.0 kB of metadata; problem: could not sleep"
    )
    shown = MaintenanceReport("shop.stock", before)
    assert report_line(shown, applied=False) == f"shop.stock: {needs}"
    assert report_line(MaintenanceReport("s.t", error="no"), applied=True) == (
        "s.t: cannot be read: no"
    )


def test_a_report_says_what_is_needed_now_what_was_done_and_what_that_gained() -> None:
    before = TableHealth(equality_files=2, data_manifests=5, metadata_bytes=4_000, snapshots=3)
    after = TableHealth(
        data_manifests=2, metadata_bytes=4_000, snapshots=3, small_files_of_worst=40
    )
    done = Conversion(files_removed=2, rows=6)
    made = MaintenanceReport("shop.a", before, after, conversion=done, compaction_requested=True)
    told = TableReport.from_json(table_report(made, applied=True).to_json())
    assert told.needs_now == ("up to 40 small data files in a bucket: scans are slow",)
    assert told.done == (
        "2 equality delete files became 6 positions",
        "a compaction was requested: the table's next round makes it",
    )
    assert told.gains == ("2 -> 0 files of equality deletes", "5 -> 2 manifests")
    looked = MaintenanceReport("shop.a", before, snapshots_due=2)
    told = table_report(looked, applied=False)
    assert (told.needs_now, told.done) == (told.needs, ("2 snapshots may expire",))
    assert report("shop.a", "gone").needs_now is None


def test_a_report_of_an_earlier_sluice() -> None:
    content = report("shop.a").to_json()
    earlier = {n: v for n, v in content.items() if n not in ("needs_now", "done", "gains")}
    told = TableReport.from_json(earlier)
    assert (told.needs_now, told.done, told.gains) == (None, (), ())
