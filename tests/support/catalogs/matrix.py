"""The matrix of catalogs and of what rounds must do on each: its rows, and cells that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.catalogs import operations, read_back, rounds, upkeep
from tests.support.catalogs.rounds import RoundSite
from tests.support.catalogs.servers import COLUMNS, OTHER_NAMES

Row = Callable[[RoundSite], None]
ROWS: dict[str, Row] = {
    "log": rounds.log_rounds,
    "keyed": rounds.keyed_rounds,
    "partitions": operations.partitions,
    "foreign commits": operations.foreign_commits,
    "recovery": operations.recovery,
    "race": operations.race,
    "created at once": operations.at_once,
    "compaction": upkeep.compaction,
    "expiry": upkeep.expiry,
    "maintain": upkeep.maintain,
    "clean": upkeep.clean,
    "doctor": upkeep.doctor,
    "repair": upkeep.repair,
    "sql": upkeep.sql,
    "executors": operations.executors,
    "spark reader": read_back.spark_reader,
    "pyiceberg reader": read_back.pyiceberg_reader,
    "duckdb reader": read_back.duckdb_reader,
}
_OF_OTHER_NAMES = (
    *("log", "keyed", "foreign commits", "doctor", "sql"),
    *("pyiceberg reader", "duckdb reader"),
)
"""A catalog under another name or login is opened in other ways, and does the same."""
_OF_NESSIE_API = (
    *_OF_OTHER_NAMES,
    "recovery",
    "race",
    "created at once",
    *("expiry", "clean", "repair"),
)
"""Iceberg's own client of Nessie writes the metadata files itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cell ends with these words."""

    words: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Not a cell of its own."""

    why: str
    test: str = ""
    """The file or the folder of the tests that run it."""


_COOKBOOK = Elsewhere("with the settings of a page", "tests/catalogs/test_cookbook.py")
_SAME = Elsewhere("the same catalog as another column")

_KEEPS_FILES = {
    "expiry": "its property gc.enabled is false: nothing expires, and no file is deleted",
    "clean": "the property gc.enabled of the lake table is false: others may need its files",
}
"""Nessie shows one snapshot of a table; its branches may need the files of others."""
EXCEPTIONS: dict[tuple[str, str], Refusal | Elsewhere] = {
    **{
        (column, row): _SAME
        for column in OTHER_NAMES
        for row in ROWS
        if row not in (_OF_NESSIE_API if column == "nessie-api" else _OF_OTHER_NAMES)
    },
    **{
        (column, row): Refusal(words)
        for column in ("nessie", "vended-by-nessie")
        for row, words in _KEEPS_FILES.items()
    },
    **{
        (column, "repair"): Elsewhere(
            "main cannot be set back to a snapshot that is hidden",
            "tests/catalogs/test_no_history.py",
        )
        for column in ("nessie", "vended-by-nessie")
    },
    **{
        (column, row): _COOKBOOK
        for column in (
            *("vended-in-config", "vended-by-nessie", "glue", "hive3", "hive4"),
            *("jdbc-postgresql", "jdbc-sqlite"),
        )
        for row in ("spark reader", "pyiceberg reader")
    },
    **{
        ("hadoop-on-s3", row): Elsewhere("refused as the row log is")
        for row in ROWS
        if row != "log"
    },
    **{
        (column, "spark reader"): Elsewhere("the row sql is Spark's, with the same properties")
        for column in ("nessie", "oauth-rest", "s3proxy", "hadoop")
    },
    **{
        ("hadoop", row): Elsewhere("most tests run on it", "tests/spark")
        for row in ROWS
        if row not in _OF_OTHER_NAMES
    },
    **{
        ("s3proxy", row): Elsewhere("it is about the catalog, which is that of jdbc-sqlite")
        for row in ("partitions", "foreign commits", "recovery", "race", "created at once")
    },
    ("nessie-api", "expiry"): Refusal("Cannot expire snapshots: GC is disabled"),
    ("nessie-api", "clean"): Refusal(_KEEPS_FILES["clean"]),
    ("hadoop-on-s3", "log"): Refusal("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
    ("hive4", "pyiceberg reader"): Elsewhere(
        "PyIceberg's client fails: Invalid method name: 'get_table'",
        "tests/catalogs/test_cookbook.py",
    ),
    ("vended-in-config", "sql"): Elsewhere(
        "its keys end sooner than Spark has read", "tests/catalogs/test_cookbook.py"
    ),
    ("vended-in-config", "duckdb reader"): _COOKBOOK,
    ("vended-by-nessie", "duckdb reader"): _COOKBOOK,
}
"""Cells that are refused, or run elsewhere, by column and row."""
CELLS = [
    (column, row)
    for column in COLUMNS
    for row in ROWS
    if not isinstance(EXCEPTIONS.get((column, row)), Elsewhere)
]
"""The cells that are run, those of a column one after the other."""
