"""What a result tells the history of rounds: each field has a place that it comes from."""

from __future__ import annotations

from dataclasses import fields

from sluice.model import Claim, KeptStatus, TablePath, TieringRound
from sluice.model.record_fields import fields_of
from sluice.rounds.records.result import RoundResult
from sluice.statuses.outcomes import after_success

CALLED_OTHERWISE = {"rows_written": "rows", "keys_deleted": "deletes", "files_written": "files"}
ADDED_BY_KEEPER = {"round_number", "started_ms", "ended_ms", "reason"}
ADDED_BY_CALLER = {"note", "worker", "airflow_task", "spark_application"}
PHASES = {
    f"{phase}_ms"
    for phase in ("recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit", "expire")
}
CLAIM = Claim(1, TablePath("shop", "orders"), 1, 0)


def test_each_field_of_the_history_comes_from_somewhere() -> None:
    """One that is misspelt in a result would be NULL for ever."""
    in_result = {entry.name for entry in fields(RoundResult)}
    told = {CALLED_OTHERWISE.get(entry.name, entry.name) for entry in fields_of(TieringRound)}
    assert told - in_result == ADDED_BY_KEEPER | ADDED_BY_CALLER | PHASES


def test_a_result_tells_its_numbers_and_no_empty_text() -> None:
    result = RoundResult.of(CLAIM, "committed", rows=7, deletes=2, files=3, lake_rows=70)
    told = result.details("me", airflow_task="d/r/t/-1/1")
    assert (told.rows_written, told.keys_deleted, told.files_written) == (7, 2, 3)
    assert (told.worker, told.airflow_task, told.lake_rows) == ("me", "d/r/t/-1/1", 70)
    assert (told.deletes_as, told.compacted, told.accepted, told.note) == (None,) * 4
    assert (told.table_id, told.tiering_epoch) == (-1, None), "who keeps the history adds them"


def test_a_status_takes_the_size_of_the_lake_from_a_round() -> None:
    sizes = {"lake_rows": 1, "lake_files": 2, "lake_bytes": 3}
    kept = after_success(KeptStatus(lake_rows=9), 5, None, TieringRound(**sizes))
    assert {name: kept[name] for name in sizes} == sizes
    assert "lake_rows" not in after_success(KeptStatus(lake_rows=9), 5, None, TieringRound())
