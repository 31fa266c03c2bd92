"""Wrong positions are wrong answers without an error: each guard taken away, and put back.

A test that takes one away shows the damage as Spark reads it. With the guard the same round is
refused, looks up its rows again, and is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from sluice.lake.iceberg.commit import position_checks as position_commit
from sluice.lake.iceberg.commit import table_commits, update_content
from sluice.lake.iceberg.deletes import key_deletes, position_deletes
from sluice.lake.iceberg.deletes.earlier_marks import Positions
from sluice.lake.iceberg.table import IcebergTable
from sluice.rounds.records.result import RoundResult
from tests.spark.conftest import STOCK, LocalStock

pytestmark = [pytest.mark.spark, pytest.mark.slow]
V2, V3 = 2, 3
ANOTHER = [pytest.mark.long]


class Without:
    """A row delta to which some calls are not passed on, or another argument is."""

    def __init__(self, delta: Any, instead: dict[str, Any]) -> None:
        self._delta, self._instead = delta, instead

    def __getattr__(self, name: str) -> Any:
        if name not in self._instead:
            return getattr(self._delta, name)
        argument = self._instead[name]
        if argument is None:
            return lambda *_: self
        return lambda *_: getattr(self._delta, name)(argument())


@dataclass
class Guards:
    """A table with rows, and with positions unless a test says no; and another writer."""

    stock: LocalStock
    patch: pytest.MonkeyPatch
    version: int
    acts: list[Callable[[], object]] = field(default_factory=list)

    def begin(self, *, earlier: bool = True) -> None:
        """:param earlier: whether the rounds before have deleted rows of the data files."""
        self.stock.create(version=self.version)
        self.stock.put({key: key for key in range(40)})
        self.stock.tier()
        if earlier:
            self.stock.put({key: -key for key in range(4)})
            assert self.stock.tier().deletes_as == "positions"
        commit = IcebergTable.commit

        def after_an_act(table: IcebergTable, *arguments: Any) -> Any:
            if self.acts:
                self.acts.pop(0)()
            return commit(table, *arguments)

        self.patch.setattr(IcebergTable, "commit", after_an_act)

    def round(self, *acts: Callable[[], object]) -> RoundResult:
        """Changes some rows; another writer acts before each try to commit them."""
        self.acts[:] = acts
        self.stock.put({key: 100 + key for key in range(2, 8)})
        self.stock.delete(9, 10)
        result = self.stock.tier()
        assert self.acts == []
        return result

    def without_checks(self) -> None:
        self.patch.setattr(table_commits, "check_positions", lambda *_: None)

    def without(self, *names: str, **instead: Any) -> None:
        """Takes Iceberg's own checks away."""
        whole = position_commit.validate_positions
        left_out = dict.fromkeys(names) | instead

        def some(gateway: Any, table: Any, delta: Any, *others: Any) -> None:
            now = {k: v and partial(v, table) for k, v in left_out.items()}
            whole(gateway, table, Without(delta, now), *others)

        self.patch.setattr(update_content, "validate_positions", some)

    def call(self, procedure: str) -> None:
        options = "map('rewrite-all', 'true')"
        self.stock.rows(
            f"CALL lake.system.{procedure}(table => 'shop.stock', options => {options})"
        )

    def compact(self) -> None:
        self.call("rewrite_data_files")

    def delete_by_spark(self, *keys: int, mode: str = "merge-on-read") -> None:
        self.stock.rows(f"ALTER TABLE {{lake}} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
        self.stock.rows(f"DELETE FROM {{lake}} WHERE id IN ({', '.join(map(str, keys))})")

    def append_by_spark(self, key: int) -> None:
        self.stock.rows(f"INSERT INTO {{lake}} VALUES ('mon', {key}, 'of others', 0)")

    def summary(self) -> dict[str, Any]:
        """How the newest round deleted rows."""
        [row] = self.stock.rows(
            "SELECT summary['sluice.deletes'] FROM {lake}.snapshots"
            " WHERE summary['sluice.deletes'] IS NOT NULL ORDER BY committed_at DESC LIMIT 1"
        )
        return json.loads(row[0])

    def assert_looked_up(self, times: int) -> None:
        self.stock.assert_equal()
        found = self.summary()
        assert (found["kinds"], found["lookups"]) == (["position"], times)
        self.assert_no_litter()

    def assert_refused(self, result: RoundResult, why: str) -> None:
        """Our own checks refuse the positions of each look-up, and the rows are right.

        :param why: a regular expression.
        """
        again = [note for note in result.notes if "looked up again" in note]
        assert len(again) == 2
        assert all(re.search(f"looked up again: {why}", note) for note in again), again
        assert result.deletes_as.startswith("equality deletes (the lake refused positions 3 times")
        self.stock.assert_equal()

    def assert_no_litter(self) -> None:
        self.stock.assert_no_litter()

    def assert_doubled(self) -> None:
        with pytest.raises(AssertionError, match="a key is there twice"):
            self.stock.assert_equal()


Begin = Callable[..., Guards]


@pytest.fixture
def guards(stock: LocalStock, monkeypatch: pytest.MonkeyPatch) -> Begin:
    def make(version: int, *, earlier: bool = True) -> Guards:
        made = Guards(stock, monkeypatch, version)
        made.begin(earlier=earlier)
        return made

    return make


def versions(slow: int | None = None) -> pytest.MarkDecorator:
    """Both format versions; those but one are long."""
    cases = [pytest.param(one, marks=[] if one == slow else ANOTHER) for one in (V2, V3)]
    return pytest.mark.parametrize("version", cases)


@versions()
def test_nothing_is_in_between(guards: Begin, version: int) -> None:
    """The scene itself: so the damage below comes from what is taken away."""
    scene = guards(version)
    scene.round()
    scene.assert_looked_up(1)


class TestPathsInAnotherSpelling:
    """Iceberg compares texts: it takes such a path for a data file that is not there (any more)."""

    @staticmethod
    def respell(patch: pytest.MonkeyPatch) -> None:
        find = position_deletes.new_positions

        def found(*arguments: Any) -> tuple[Positions, int]:
            positions, size_bytes = find(*arguments)
            return {p.removeprefix("file:"): rows for p, rows in positions.items()}, size_bytes

        patch.setattr(key_deletes, "new_positions", found)

    @versions(slow=V2)
    def test_they_mark_nothing(
        self, guards: Begin, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene = guards(version)
        assert scene.stock.rows("SELECT file_path FROM {lake}.files")[0][0].startswith("file:/")
        self.respell(monkeypatch)
        scene.without_checks()
        scene.without("validateDataFilesExist")
        assert scene.round().deletes_as == "positions"
        scene.assert_doubled()

    @versions(slow=V2)
    def test_with_the_check_they_are_refused(
        self, guards: Begin, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene = guards(version)
        self.respell(monkeypatch)
        result = scene.round()
        scene.assert_refused(result, r"data file /\S+\.parquet is not in lake snapshot \d+,")
        scene.assert_no_litter()


class TestACompactionInBetween:
    @versions(slow=V2)
    def test_without_iceberg_looking_for_the_files_rows_are_doubled(
        self, guards: Begin, version: int
    ) -> None:
        scene = guards(version, earlier=False)
        scene.without("validateDataFilesExist")
        scene.round(scene.compact)
        scene.assert_doubled()

    @versions()
    def test_so_they_are_if_it_looks_only_at_what_came_after_the_refusal(
        self, guards: Begin, version: int
    ) -> None:
        """A try that began at the newest snapshot would not see what was rewritten before it."""
        scene = guards(version, earlier=False)
        scene.without(validateFromSnapshot=lambda table: table.currentSnapshot().snapshotId())
        scene.round(scene.compact)
        scene.assert_doubled()

    @versions(slow=V3)
    def test_with_both_the_rows_are_looked_up_again(self, guards: Begin, version: int) -> None:
        scene = guards(version)
        result = scene.round(scene.compact)
        assert any("looked up again" in note for note in result.notes)
        scene.assert_looked_up(2)

    @versions(slow=V2)
    def test_one_in_each_of_three_tries_ends_with_equality_deletes(
        self, guards: Begin, version: int
    ) -> None:
        scene = guards(version)
        result = scene.round(*[scene.compact] * 3)
        assert "the lake refused positions 3 times" in result.deletes_as
        assert scene.summary()["kinds"] == ["equality"]
        scene.stock.assert_equal()
        scene.assert_no_litter()
        scene.round()
        scene.assert_looked_up(1)

    @versions()
    def test_one_after_the_third_look_up_disturbs_no_equality_deletes(
        self, guards: Begin, version: int
    ) -> None:
        scene = guards(version)
        scene.round(*[scene.compact] * 4)
        scene.stock.assert_equal()


class TestASecondVector:
    """Nothing of Iceberg keeps a data file from having two; no reader plans such a table."""

    @staticmethod
    def forget_earlier(patch: pytest.MonkeyPatch) -> None:
        for name in ("write_position_files", "write_vector_file"):
            write = getattr(position_deletes, name)

            def forgetful(*arguments: Any, write: Any = write) -> Any:
                return replace(write(*arguments), replaced=())

            patch.setattr(key_deletes, name, forgetful)

    def test_makes_the_table_unreadable(
        self, guards: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene = guards(V3)
        self.forget_earlier(monkeypatch)
        scene.without_checks()
        assert scene.round().deletes_as == "positions"
        with pytest.raises(Exception, match="Can't index multiple DVs"):
            scene.stock.in_lake()

    def test_is_refused(self, guards: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
        scene = guards(V3)
        self.forget_earlier(monkeypatch)
        scene.assert_refused(
            scene.round(), r"data file \S+ would have two deletion vectors: its earlier one is not"
        )

    @pytest.mark.long
    def test_position_delete_files_may_be_several(
        self, guards: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene = guards(V2)
        monkeypatch.setattr(position_deletes, "MERGED_FROM", 1)
        self.forget_earlier(monkeypatch)
        scene.without_checks()
        scene.round()
        scene.assert_looked_up(1)


class TestADeleteOfOthersInBetween:
    """Of rows that the round changes, which are there again, and of others, which are not."""

    KEYS = (5, 20, 21)

    def delete(self, scene: Guards, mode: str) -> None:
        scene.delete_by_spark(*self.KEYS, mode=mode)
        for key in (20, 21):
            del scene.stock.held["mon", key]

    def test_a_vector_beside_a_new_one_makes_the_table_unreadable(self, guards: Begin) -> None:
        scene = guards(V3, earlier=False)
        scene.without_checks()
        scene.without(validateFromSnapshot=lambda table: table.currentSnapshot().snapshotId())
        scene.round(lambda: self.delete(scene, "merge-on-read"))
        with pytest.raises(Exception, match="Can't index multiple DVs"):
            scene.stock.in_lake()

    @versions()
    def test_rows_copied_into_new_files_are_doubled(self, guards: Begin, version: int) -> None:
        scene = guards(version, earlier=False)
        scene.without("validateDataFilesExist", "validateNoConflictingDataFiles")
        scene.round(lambda: self.delete(scene, "copy-on-write"))
        scene.assert_doubled()

    @versions(slow=V3)
    @pytest.mark.parametrize(
        "mode", ["merge-on-read", pytest.param("copy-on-write", marks=ANOTHER)]
    )
    def test_with_the_guards_both_are_right(
        self,
        guards: Begin,
        version: int,
        mode: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        scene = guards(version)
        monkeypatch.setattr(position_deletes, "MERGED_FROM", 1)  # so that a file is replaced, too
        result = scene.round(lambda: self.delete(scene, mode))
        assert result.deletes_as == "positions"
        scene.stock.assert_equal()
        scene.assert_no_litter()


class TestAnAppendOfOthersInBetween:
    """Its row has a key of the round; an equality delete would reach it."""

    @versions(slow=V2)
    def test_the_row_stays_beside_ours(self, guards: Begin, version: int) -> None:
        scene = guards(version)
        scene.without("validateNoConflictingDataFiles")
        scene.round(lambda: scene.append_by_spark(5))
        scene.assert_doubled()

    @versions(slow=V3)
    def test_with_the_guard_it_is_found(self, guards: Begin, version: int) -> None:
        scene = guards(version)
        scene.round(lambda: scene.append_by_spark(5))
        scene.assert_looked_up(2)


@pytest.mark.parametrize("day", ["tue", "mon"])
def test_an_append_to_another_partition_is_no_conflict(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    """One to the partition of the changed keys is."""
    stock.create(partitioned=True)
    for one in ("mon", "tue"):
        stock.client.admin.create_partition(STOCK, {"day": one})
        stock.put({key: key for key in range(10)}, one)
    stock.tier()
    commit = IcebergTable.commit
    rows = [f"INSERT INTO {{lake}} VALUES ('{day}', 99, 'of others', 0)"]

    def after_an_append(table: IcebergTable, *arguments: Any) -> Any:
        if rows:
            stock.rows(rows.pop())
        return commit(table, *arguments)

    monkeypatch.setattr(IcebergTable, "commit", after_an_append)
    stock.put({key: -key for key in range(5)}, "mon")
    result = stock.tier()
    assert result.deletes_as == "positions"
    assert any("looked up again" in note for note in result.notes) == (day == "mon")
    stock.held[day, 99] = ("of others", 0)
    stock.assert_equal()


@versions()
def test_a_planned_snapshot_that_has_expired(guards: Begin, version: int) -> None:
    scene = guards(version)

    def expire() -> None:
        scene.compact()
        scene.stock.rows(
            "CALL lake.system.expire_snapshots(table => 'shop.stock', retain_last => 1,"
            " older_than => TIMESTAMP '2100-01-01 00:00:00')"
        )

    scene.compact()  # what is planned from is not tagged, then
    scene.round(expire)
    scene.assert_looked_up(2)


@pytest.mark.long
def test_position_delete_files_that_others_rewrite_in_between(
    guards: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round replaces a file that is gone by then."""
    scene = guards(V2)
    monkeypatch.setattr(position_deletes, "MERGED_FROM", 1)
    scene.round(lambda: scene.call("rewrite_position_delete_files"))
    scene.assert_looked_up(2)


@pytest.mark.long
@pytest.mark.parametrize("version", [V2, V3])
def test_a_position_behind_the_end_of_its_file(
    guards: Begin, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = guards(version)
    find = position_deletes.new_positions

    def found(*arguments: Any) -> tuple[Positions, int]:
        positions, size_bytes = find(*arguments)
        return {path: rows + np.int64(10**6) for path, rows in positions.items()}, size_bytes

    monkeypatch.setattr(key_deletes, "new_positions", found)
    why = r"position 10000\d\d of data file file:\S+\.parquet, which has \d+ rows"
    scene.assert_refused(scene.round(), why)
