"""Of which files a lake table consists, and how many snapshots it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.lake.lake_readers import SPARK
from bench.lake.table_scans import OTHERS_LIMIT_S, Ask, Tables, started
from bench.measure import Line, report
from sluice.model import TablePath

MB = 1e6
ALL_METADATA = "all_metadata"
"""Earlier snapshots' metadata included, which no scan reads."""
CONTENTS: dict[int | str, str] = {
    0: "data",
    1: "position_deletes",
    2: "equality_deletes",
    "manifest": "manifests",
}
"""The contents of a table's files, as manifests number them."""

Sizes = dict[str, tuple[int, int]]
"""Number and bytes of the files of each content. A Puffin file of many vectors is one."""


def report_sizes(tables: Tables) -> None:
    """Reports what the newest snapshot of the table consists of, and all of its metadata."""
    with started(SPARK, tables.home) as running:
        copy, table = (
            sizes(running.ask, path) | _metadata(tables.home, path)
            for path in (tables.copy, tables.table)
        )
        [snapshots] = _answer(running.ask, "snapshots", tables.table)
    for content, (files, size) in table.items():
        of_files, of_size = copy[content]
        text = f"the copy ({of_size / MB:.2f} MB, {of_files} files); {files} files"
        ratio = size / of_size if of_size else None
        report(Line(f"  lake: {content}", size / MB, "MB", ratio, text))
    report(Line("  lake: snapshots", snapshots, "snapshots", None, "at the end"))


def sizes(ask: Ask, path: TablePath, snapshot: int | None = None) -> Sizes:
    """:param ask: asks Spark.
    :param snapshot: None: the newest.
    """
    by_content: dict[str, dict[str, int]] = {content: {} for content in CONTENTS.values()}
    for number, name, size in _answer(ask, "files", path, snapshot=snapshot):
        by_content[CONTENTS[number]][name] = size
    return {content: (len(files), sum(files.values())) for content, files in by_content.items()}


def _metadata(home: Path, path: TablePath) -> Sizes:
    folder = home / "lake" / path.database / path.table / "metadata"
    found = [file.stat().st_size for file in folder.iterdir()]
    return {ALL_METADATA: (len(found), sum(found))}


def _answer(ask: Ask, what: str, path: TablePath, **question: object) -> list[Any]:
    found = ask(OTHERS_LIMIT_S, what=what, table=str(path), **question)
    assert found.answer is not None, found
    return found.answer
