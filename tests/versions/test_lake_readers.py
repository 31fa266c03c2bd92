"""What docs/lake.md says of each engine: its own blocks are run, and every value is compared.

The engines are installed in fresh environments, at the versions that the page names. Spark is the
one that runs these tests; its blocks alone are run in `make test-slow`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.formats.kernels import cache as kernel_cache
from tests.docs.blocks import Block, claimed_blocks, commands
from tests.support.lake.lake_engines import DUCKDB, INSTALL_EXTENSIONS, PYTHON, pyarrow_pin
from tests.support.programs.built_wheel import ROOT, Environment, locked_versions, new_environment
from tests.support.programs.installed import JARS
from tests.support.programs.processes import SLUICE, ServerProcess, environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs" / "lake.md"
EQUALITY = "ValueError: PyIceberg does not yet support equality deletes"
NO_LOOKUP = "SLUICE_TIERING_POSITION_LOOKUP_BYTES=0"
NO_TIME = "Spark does not support time fields"
TIMEOUT_S = 300

SCHEMA = (
    "id BIGINT NOT NULL, flag BOOLEAN, tiny TINYINT, small SMALLINT, n INT, f FLOAT, x DOUBLE,"
    " c CHAR(3), s STRING, b3 BINARY(3), b BYTES, price DECIMAL(10, 2), big DECIMAL(38, 9),"
    " day DATE, at TIMESTAMP(6), at9 TIMESTAMP(9), seen TIMESTAMP_LTZ(3), country STRING"
)
TYPES = pa.schema(
    {
        "id": pa.int64(),
        "flag": pa.bool_(),
        "tiny": pa.int8(),
        "small": pa.int16(),
        "n": pa.int32(),
        "f": pa.float32(),
        "x": pa.float64(),
        "c": pa.string(),
        "s": pa.string(),
        "b3": pa.binary(3),
        "b": pa.binary(),
        "price": pa.decimal128(10, 2),
        "big": pa.decimal128(38, 9),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "at9": pa.timestamp("ns"),
        "seen": pa.timestamp("ms", "UTC"),
        "country": pa.string(),
    }
)
_VALUES: list[tuple[Any, ...]] = [
    (
        *(
            1,
            True,
            -128,
            -32768,
            -(2**31),
            1.5,
            0.1,
            "abc",
            "Zürich ☃",
            b"\x00\x01\xff",
            b"\x00\xfe",
        ),
        *(
            Decimal("12.34"),
            Decimal("-12345678901234567890123456789.123456789"),
            date(1969, 12, 31),
        ),
        *(datetime(2013, 1, 1, 5, 15, 0, 123456), -1),
        *(datetime(2013, 1, 1, 5, 15, 0, 123000, UTC), "CH"),
    ),
    (2, *[None] * 16, "US"),
    (
        *(3, False, 127, 32767, 2**31 - 1, float("inf"), -1e300, "x", "", b"xyz", b""),
        *(Decimal("-99999999.99"), Decimal(0), date(9999, 12, 31), datetime(1900, 1, 1)),
        *(1_000_000_000_123_456_789, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), "US"),
    ),
]
ROWS = [dict(zip(TYPES.names, values, strict=True)) for values in _VALUES]
AT9 = {-1: datetime(1969, 12, 31, 23, 59, 59, 999999)}
AT9[1_000_000_000_123_456_789] = datetime(2001, 9, 9, 1, 46, 40, 123456)
EXPECTED = [{**row, "at9": AT9.get(row["at9"])} for row in ROWS]
CLOCK = [{"id": 1, "t": time(5, 15)}, {"id": 2, "t": None}]
FIRST = [{"item": "ink", "n": 4}, {"item": "pen", "n": 3}]
# Three rounds: upserts; upserts and deletes; a key that comes back, and one that goes.
CHANGES = (
    ("item,n\npen,3\nink,4\ncap,5\nbag,6\n", ""),
    ("item,n\npen,30\nhat,7\n", "item\ncap\n"),
    ("item,n\nink,40\ncap,50\n", "item\nbag\n"),
)
LAST = [{"item": i, "n": n} for i, n in [("cap", 50), ("hat", 7), ("ink", 40), ("pen", 30)]]

_SPARK = """
from pathlib import Path
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.jars", str(next(Path("jars").glob("iceberg-spark-runtime-*.jar"))))
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", str(Path("lake").resolve())).getOrCreate()
)
def read(name, columns):
    return spark.table("lake.shop." + name).select(*columns).toArrow()
"""
_VECTORS = """
spark.sql("ALTER TABLE lake.shop.vectors SET TBLPROPERTIES ('format-version' = '3')")
"""
PAIRS = [f"pair{number}" for number in range(10)]
_TWO_IN_ONE_FILE = f"""
for name in {PAIRS}:
    spark.sql(
        f"CREATE TABLE lake.shop.{{name}} (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read',"
        " 'write.delete.granularity' = 'partition')"
    )
    for first in (0, 10_000):
        spark.range(first, first + 10_000, 1, 1).write.insertInto(f"lake.shop.{{name}}")
    deleted = "id % 2 = 0 AND id < 6000 OR id % 97 = 0 AND id > 12000"
    spark.sql(f"DELETE FROM lake.shop.{{name}} WHERE {{deleted}}")
    files = spark.table(f"lake.shop.{{name}}.delete_files").collect()
    assert sorted(row.record_count for row in files) == [83, 3000], files
    assert len({{row.file_path for row in files}}) == 1, files
"""
"""Tables with two vectors in one Puffin file each, by Spark alone."""
_PYICEBERG = """
from pyiceberg.table import StaticTable
def read(name, columns):
    table = StaticTable.from_metadata("lake/shop/" + name)
    return table.scan(selected_fields=columns).to_arrow()
"""
_POLARS = """
import polars
def read(name, columns):
    scan = polars.scan_iceberg("lake/shop/" + name, reader_override="READER")
    return scan.select(columns).collect().to_arrow()
"""
# As without the package polars-iceberg, which only adds a warning.
_PLANNER = "import os\nos.environ['POLARS_ICEBERG_PLANNER'] = 'pyiceberg'\n"
_DUCKDB = """
import duckdb
def read(name, columns):
    named = ", ".join(f'"{column}"' for column in columns)
    return duckdb.sql(f"SELECT {named} FROM iceberg_scan('lake/shop/{name}')").to_arrow_table()
"""
_REPORT = """
import sys
import pyarrow.parquet
for name, columns in WANTED:
    target = f"{OUT}/{name}-{len(columns)}"
    try:
        pyarrow.parquet.write_table(read(name, columns), target)
    except Exception as error:
        with open(target + ".error", "w") as file:
            file.write(f"{type(error).__name__}: {error}")
"""
ENGINES = {
    "spark": _SPARK,
    "pyiceberg": _PYICEBERG,
    "polars-native": _POLARS.replace("READER", "native"),
    "polars-pyiceberg": _POLARS.replace("READER", "pyiceberg"),
    "polars-planned-by-pyiceberg": _PLANNER + _POLARS.replace("READER", "native"),
    "duckdb": _DUCKDB,
}
_SYSTEM = ["__bucket", "__offset", "__timestamp"]
LEGACY = "SLUICE_DATALAKE_ICEBERG_LAYOUT=legacy"
WANTED = [
    ("kinds", [*TYPES.names, *_SYSTEM]),
    ("visits", [*TYPES.names]),
    ("clock", ["id", "t"]),
    ("clock", ["id"]),
    ("first", ["item", "n"]),
    ("changed", ["item", "n"]),
    ("changed", ["n"]),
    ("vectors", ["item", "n"]),
    ("equality", ["item", "n"]),
]


@dataclass
class Lab:
    """A folder with a lake, a running server and the engines' environments."""

    folder: Path
    variables: dict[str, str]

    @cached_property
    def python(self) -> Environment:
        return self._installed("python", *PYTHON)

    @cached_property
    def duckdb(self) -> Environment:
        """Its extensions come from packages."""
        found = self._installed("duckdb", *DUCKDB, "pyarrow")
        done = self._run([found.python, "-c", INSTALL_EXTENSIONS], found.variables)
        assert done.returncode == 0, done.stderr
        return found

    def bash(self, script: str) -> str:
        done = self._run(["bash", "-euo", "pipefail", "-c", script])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def interpret(self, engine: str, code: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with the engine that is named, in the lake's folder."""
        if engine.startswith("spark"):
            return self._run([sys.executable, "-c", code])
        home = self.duckdb if engine.startswith("duckdb") else self.python
        return self._run([home.python, "-W", "error", "-c", code], home.variables)

    def tier(
        self, table: str, upserts: Path | str, deletes: str = "", *options: str, prefix: str = ""
    ) -> None:
        """Upserts or appends a file or CSV text, deletes keys, and runs a round.

        :param prefix: variables for the round.
        """
        if isinstance(upserts, str):
            (self.folder / "upserts.csv").write_text(upserts)
            upserts = Path("upserts.csv")
        self.bash(f"sluice append {table} {upserts} {' '.join(options)}")
        if deletes:
            (self.folder / "deletes.csv").write_text(deletes)
            self.bash(f"sluice delete {table} deletes.csv")
        self.bash(f"{prefix} sluice tier {table} --warehouse lake --now")

    def _installed(self, name: str, *packages: str) -> Environment:
        found = new_environment(self.folder / name)
        found.install(*packages, options=["--constraints", str(pyarrow_pin(self.folder))])
        return found

    def _run(
        self, command: list[str], variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        env = {**(variables or self.variables), "HOME": str(self.folder / "home"), "TZ": "UTC"}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@contextmanager
def new_lab(folder: Path) -> Iterator[Lab]:
    (folder / "jars").symlink_to(JARS)
    (folder / "home").mkdir()
    server = ServerProcess(folder / "data")
    loops = kernel_cache.folder()
    assert loops is not None
    try:
        variables = environment(
            {
                "NUMBA_CACHE_DIR": str(loops.parent),  # the lab's home has no compiled loops
                "SLUICE_CLIENT_BOOTSTRAP": server.start(),
                "SLUICE_TIERING_JARS": JARS,
                "PATH": f"{Path(SLUICE).parent}{os.pathsep}{os.environ['PATH']}",
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
        )
        yield Lab(folder, variables)
    finally:
        server.kill()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with new_lab(tmp_path_factory.mktemp("readers")) as made:
        yield made


@pytest.fixture(scope="module")
def pairs(lab: Lab) -> Lab:
    done = lab.interpret("spark", _SPARK + _TWO_IN_ONE_FILE)
    assert done.returncode == 0, done.stderr
    return lab


@pytest.fixture(scope="module")
def tables(lab: Lab) -> Lab:
    """The tables of WANTED in the lake."""
    arrays = [pa.array([row[f.name] for row in ROWS], f.type) for f in TYPES]
    pq.write_table(pa.Table.from_arrays(arrays, schema=TYPES), lab.folder / "rows.parquet")
    lab.bash(f"sluice create-table shop.kinds --schema '{SCHEMA}' --buckets 2")
    lab.bash(f"sluice create-table shop.visits --schema '{SCHEMA}' --partition-by country")
    lab.bash("sluice create-table shop.clock --schema 'id BIGINT NOT NULL, t TIME'")
    for name in ("first", "changed", "vectors", "equality"):
        schema = "item STRING, n INT, PRIMARY KEY (item)"
        lab.bash(f"sluice create-table shop.{name} --schema '{schema}' --buckets 2")
    lab.tier("shop.kinds", Path("rows.parquet"), prefix=LEGACY)
    lab.tier("shop.visits", Path("rows.parquet"), "", "--create-partitions")
    lab.tier("shop.clock", "id,t\n1,05:15:00\n2,\n")
    lab.tier("shop.first", "item,n\npen,3\nink,4\n")
    for upserts, deletes in CHANGES:
        lab.tier("shop.changed", upserts, deletes)
        lab.tier("shop.equality", upserts, deletes, prefix=NO_LOOKUP)
    for number, (upserts, deletes) in enumerate(CHANGES):
        lab.tier("shop.vectors", upserts, deletes)
        if number == 0:
            done = lab.interpret("spark", _SPARK + _VECTORS)
            assert done.returncode == 0, done.stderr
    return lab


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "right"),
    [(engine, True) for engine in ENGINES if engine != "duckdb"] + [("duckdb", False)],
)
def test_two_vectors_in_one_puffin_file(engine: str, right: bool, pairs: Lab) -> None:
    """DuckDB 1.5.5 gives a data file the vector of another. Once it does not, change the page.

    The order in the file is one of chance, and with some DuckDB is right: so it reads ten tables.
    """
    code = f"print('rows', *[read(name, ['id']).num_rows for name in {PAIRS}])"
    done = pairs.interpret(engine, f"{ENGINES[engine]}\n{code}")
    assert done.returncode == 0, done.stderr
    found = list(map(int, done.stdout.rpartition("rows ")[2].split()))
    assert (found == [20_000 - 3_000 - 83] * len(PAIRS)) == right, found


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_every_value(engine: str, tables: Lab, tmp_path: Path) -> None:
    given = f"WANTED = {json.dumps(WANTED)}\nOUT = {str(tmp_path)!r}\n"
    done = tables.interpret(engine, ENGINES[engine] + given + _REPORT)
    assert done.returncode == 0, done.stderr
    found = {f"{name}-{len(c)}": _found(tmp_path / f"{name}-{len(c)}") for name, c in WANTED}
    assert found.pop(f"visits-{len(TYPES.names)}") == EXPECTED
    rows = found.pop(f"kinds-{len(TYPES.names) + 3}")
    assert [{k: row[k] for k in TYPES.names} for row in rows] == EXPECTED
    places = {(r["__bucket"], r["__offset"]) for r in rows}
    assert len(places) == len(rows), "bucket and offset identify a row"
    assert all(r["__timestamp"].year > 2024 for r in rows)
    assert found.pop("first-2") == FIRST
    if engine == "spark":
        assert NO_TIME in found.pop("clock-2")
        assert NO_TIME in found.pop("clock-1"), "also where the query leaves the column out"
    else:
        assert found.pop("clock-2") == CLOCK
        assert found.pop("clock-1") == [{"id": 1}, {"id": 2}]
    assert found.pop("changed-2") == LAST
    assert found.pop("changed-1") == sorted([{"n": r["n"]} for r in LAST], key=_order)
    assert found.pop("vectors-2") == LAST
    if engine.startswith(("pyiceberg", "polars")):
        assert found.pop("equality-2").startswith(EQUALITY)
    else:
        assert found.pop("equality-2") == LAST
    assert not found


@pytest.mark.long
def test_the_tables_have_the_deletes_that_the_page_speaks_of(tables: Lab) -> None:
    """Content 1 of a delete file is positions, 2 is keys."""
    found = {}
    for name in ("changed", "vectors", "equality"):
        asked = f"SELECT DISTINCT content, file_format FROM lake.shop.{name}.delete_files"
        answer = tables.bash(f'sluice sql "{asked}" --warehouse lake --format csv')
        found[name] = answer.splitlines()[1:]
    assert found == {"changed": ["1,PARQUET"], "vectors": ["1,PUFFIN"], "equality": ["2,PARQUET"]}


@pytest.mark.long
def test_the_files_themselves_have_old_and_deleted_rows(tables: Lab) -> None:
    """Why the page says that tables are to be read through Iceberg only."""
    files = (tables.folder / "lake/shop/changed/data").rglob("*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert {"pen", "bag"} <= {row["item"] for row in rows if row.get("n") in (3, 6)}
    assert any("n" not in row for row in rows), "files of deleted positions"


@pytest.mark.long
def test_the_blocks_of_the_page(lab: Lab) -> None:
    _run_blocks(lab, _blocks())
    _after_the_compaction(lab)


@pytest.mark.long
def test_the_blocks_of_spark(tmp_path: Path) -> None:
    """Without other engines, which would have to be installed."""
    with new_lab(tmp_path) as lab:
        _run_blocks(lab, _blocks("The tables of this page", "Spark"))


def test_the_page_names_these_versions() -> None:
    text = PAGE.read_text()
    names = {"pyiceberg": "PyIceberg", "duckdb": "DuckDB"}
    for wanted in (*PYTHON, DUCKDB[0]):
        name, _, version = wanted.replace("[pyarrow]", "").partition("==")
        assert f"{names.get(name, name)} {version}" in text
    pins = locked_versions().read_text()
    found = re.search(r"^pyspark==(\S+)$", pins, re.MULTILINE)
    assert found
    assert f"Spark {found[1]}" in text


def _after_the_compaction(lab: Lab) -> None:
    """A round after another writer's commit is accepted, and polars reads its changes."""
    lab.tier("shop.stock", "item,n\npen,31\n")
    code = "import polars\nprint(polars.scan_iceberg('lake/shop/stock').collect().to_dicts())"
    assert "31" in lab.interpret("polars", code).stdout
    asked = "SELECT n FROM lake.shop.stock WHERE item = 'pen'"
    assert "31" in lab.bash(f'sluice sql "{asked}" --warehouse lake --format csv').split()


def _blocks(*headings: str) -> list[tuple[str, Block]]:
    """The page's blocks with their headings; those of all headings if none is named."""
    lines = PAGE.read_text().splitlines()
    found = []
    for block in claimed_blocks("docs/lake.md", __file__):
        above = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
        found.append((above.removeprefix("## "), block))
    assert set(headings) <= {heading for heading, _ in found}
    return [each for each in found if not headings or each[0] in headings]


def _run_blocks(lab: Lab, blocks: Sequence[tuple[str, Block]]) -> None:
    """In their order; docs/lake.md shows exactly what they print."""
    sections: dict[str, list[str]] = {}
    printed = ""
    for heading, block in blocks:
        if block.language == "text":
            assert printed.strip() == block.content.strip(), block.where
        elif block.language == "bash":
            lab.bash(block.content)
        elif block.language == "console":
            for command in commands(block):
                assert lab.bash(command.text).splitlines() == list(command.output), block.where
        else:
            code = sections.setdefault(heading, [])
            done = lab.interpret(heading.lower(), _quietly(code) + block.content)
            assert done.returncode == block.exit_code, done.stdout + done.stderr
            printed = done.stderr.splitlines()[-1] if block.exit_code else done.stdout
            code.append(block.content)


def _quietly(blocks: list[str]) -> str:
    """Code that runs these blocks without their output."""
    if not blocks:
        return ""
    return (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        f"    exec({''.join(blocks)!r})\n"
    )


def _found(path: Path) -> Any:
    """Rows that an engine has read, in the order of the first column, or its error."""
    failed = path.with_name(path.name + ".error")
    if failed.exists():
        return failed.read_text()
    return sorted(pq.read_table(path).to_pylist(), key=_order)


def _order(row: dict[str, Any]) -> Any:
    return next(iter(row.values()))
