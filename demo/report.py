"""Prints the results of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.comparison.compare import Difference
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import Client
from sluice.errors import UnsupportedVersion
from sluice.model import TablePath
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.result import RoundResult


@dataclass(frozen=True, slots=True)
class Row:
    """A table after a run of the DAG."""

    table: str
    state: str
    rows: int
    deletes: int
    offsets: int
    snapshot_id: int | None
    seconds: float


def rows_of_run(client: Client, paths: Sequence[TablePath], work: Path) -> list[Row]:
    """Returns the newest round of each table, from its result file and the registered snapshot.

    :raises LookupError: a table has no result.
    """
    return [_row(client, path, work) for path in paths]


def _row(client: Client, path: TablePath, work: Path) -> Row:
    results = [
        RoundResult.from_json(content)
        for file in work.glob("*/*/result-*.json")
        if (content := read_json(str(file))) and content["table"] == str(path)
    ]
    if not results:
        raise LookupError(f"{path}: no round wrote a result file below {work}")
    newest = max(results, key=lambda result: result.tiering_epoch)
    snapshot = client.admin.lake_snapshot(path)
    offsets = snapshot.offsets if snapshot else {}
    return Row(
        str(path),
        _state(client, newest),
        newest.rows,
        newest.deletes,
        sum(offsets.values()),
        snapshot.snapshot_id if snapshot else None,
        newest.seconds.get("total", 0.0),
    )


def _state(client: Client, newest: RoundResult) -> str:
    """Returns the state after the round, although the table may already be due again."""
    with suppress(UnsupportedVersion):  # Apache Fluss has no such call: use the result
        status = client.statuses.of_coordinator(TablePath.parse(newest.table))[0]
        if status.last_error or status.last_tiered_ms is None:
            return status.status
    return "Tiered" if newest.outcome == "committed" else f"Tiered ({newest.outcome})"


def print_rows(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Prints the results of a run."""
    table = Table(title=title, box=box.ROUNDED, title_justify="left", title_style="bold")
    for heading, justify in (
        ("table", "left"),
        ("state", "left"),
        ("rows", "right"),
        ("deletes", "right"),
        ("offsets", "right"),
        ("lake snapshot id", "right"),
        ("seconds", "right"),
    ):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(
            row.table,
            row.state,
            f"{row.rows:,}",
            f"{row.deletes:,}",
            f"{row.offsets:,}",
            str(row.snapshot_id),
            f"{row.seconds:.1f}",
        )
    console.print(table)


def print_differences(console: Console, differences: Sequence[Difference]) -> None:
    """Prints the differing numbers, at most 30."""
    table = Table(title="The lake differs from the source", box=box.ROUNDED, title_style="bold red")
    for heading in ("table", "where", "measure", "source", "lake"):
        table.add_column(heading)
    for difference in differences[:30]:
        table.add_row(
            difference.table,
            escape(difference.where),
            difference.measure,
            str(difference.source),
            str(difference.lake),
        )
    console.print(table)
    if len(differences) > 30:
        console.print(f"... and {len(differences) - 30} more")


def print_equal(console: Console, catalog: str, seconds: float) -> None:
    """Prints that no difference was found, and what was compared."""
    compared = (
        " row counts, and sum, minimum, maximum and"
        " nulls of every column.\nThe log tables have each offset of each bucket exactly once."
        " flight_status equals an independent\nreplay after both runs."
    )
    if catalog == "rest":
        compared = (
            " row counts, and every value of every row, after\nboth runs, as Spark and as PyIceberg"
            " read it through the catalog. For flight_status, the source\nis an independent replay."
            " The log tables have each offset of each bucket exactly once."
        )
    console.print(
        f"\n[green]The lake equals the source:[/green]{compared} {seconds:.0f} s.",
        soft_wrap=True,
    )


def print_where_next(console: Console, folder: Path, fluss: str, catalog: str, kept: bool) -> None:
    """Prints commands to continue with."""
    console.print("\n[bold]Next steps[/bold]")
    if catalog == "rest":
        _print_next_of_rest(console, folder, kept)
        return
    if not kept:
        again = "DEMO_KEEP=demo-data make demo" + (" FLUSS=real" if fluss == "real" else "")
        console.print(f"  {again}   keep server data, lake and logs", highlight=False)
        helps = ".venv/bin/sluice --help".ljust(len(again))
        console.print(f"  {helps}   list the commands; see README.md", highlight=False)
        return
    lake = folder / "lake"
    serve = f".venv/bin/sluice serve --data-dir {folder / 'server'}"
    cluster: tuple[str, ...] = (
        serve,
        ".venv/bin/sluice status          (in another terminal)",
        f"SLUICE_TIERING_JARS=.cache/jars .venv/bin/sluice tier nyc.flights --warehouse {lake}",
    )
    if fluss == "real":
        options = f"--home {folder / 'fluss'} --conf datalake.iceberg.warehouse={lake}"
        cluster = (
            f".venv/bin/python -m tests.support.fluss.real_fluss {options}   (prints its address)",
            ".venv/bin/sluice tables --bootstrap fluss://...   (in another terminal)",
        )
    lines = (
        *cluster,
        "PYSPARK_PYTHON=$PWD/.venv/bin/python .venv/bin/spark-sql"
        f" --packages {installed_iceberg().coordinates} \\",
        "    --conf spark.sql.catalogImplementation=in-memory --conf spark.log.level=ERROR \\",
        "    --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\",
        "    --conf spark.sql.catalog.lake.type=hadoop \\",
        f"    --conf spark.sql.catalog.lake.warehouse={lake} \\",
        '    -e "SELECT origin, count(*) FROM lake.nyc.flights GROUP BY origin"',
        f"ls {folder / 'logs'}   (server, Airflow, Spark)",
    )
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)


def _print_next_of_rest(console: Console, folder: Path, kept: bool) -> None:
    """Prints the same after CATALOG=rest, whose catalog and store had all in memory."""
    lines = ["make demo   the same with a lake in a folder, which DEMO_KEEP=DIR keeps"]
    if kept:
        lines = [
            f"ls {folder / 'logs'}   (server, catalog, Airflow, Spark)",
            "The lake is gone: its catalog and its store had it in memory.",
        ]
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
