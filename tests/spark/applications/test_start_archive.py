"""spark-submit starts with the archive of `sluice warm`, and without it if it is damaged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.artifacts.class_archive import options_to_read
from sluice.artifacts.java import java, pyspark_jars
from sluice.artifacts.spark_files import driver_script
from sluice.artifacts.spark_start import OPTIONS, Application, start_here
from sluice.artifacts.spark_submit import spark_submit
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.driver.lakes.start_archive import make_start_archive
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri
from tests.spark.conftest import Site

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATH = TablePath("shop", "orders")
FROM_ARCHIVE = "source: shared objects file (top)"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder, and Java itself instead of the quick one of tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield folder


@pytest.fixture(scope="module")
def jar() -> str:
    return str(iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", "")).absolute())


@pytest.fixture(scope="module")
def archive(place: Path, jar: str) -> Path:
    made, is_new = make_start_archive(jar)
    assert is_new
    assert made.is_relative_to(place)
    return made


def test_it_is_made_once(archive: Path, jar: str) -> None:
    assert make_start_archive(jar) == (archive, False)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_a_round_with_the_archive_and_one_with_a_damaged_one(
    site: Site, archive: Path, jar: str, tmp_path: Path
) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    results, outputs, loaded = [], [], []
    for attempt in ("whole", "damaged"):
        site.append(PATH, pa.table({"id": pa.array(range(100), pa.int64())}))
        if attempt == "damaged":
            archive.rename(tmp_path / "whole.jsa")
            shutil.copy(tmp_path / "whole.jsa", archive)
            os.truncate(archive, archive.stat().st_size // 2)  # Java would end with SIGBUS
        classes = tmp_path / f"classes-{attempt}"
        conf = start_here(Application(is_small=True), jar, spark_submit(), os.environ)
        assert (str(archive) in conf[OPTIONS]) is (attempt == "whole")
        conf[OPTIONS] += f" -Xlog:class+load:file={classes}"
        result, output = submit(site, conf, jar, attempt)
        results.append((result.outcome, result.rows, result.files, result.notes))
        outputs.append(output)
        loaded.append(FROM_ARCHIVE in classes.read_text())
    (tmp_path / "whole.jsa").rename(archive)  # for the other tests
    assert results == [("committed", 100, 1, ())] * 2
    for output in outputs:  # nothing of Java
        lines = output.splitlines()
        ours = re.compile(r"INFO sluice\.driver\.[\w.]+ shop\.orders: ")
        assert all(ours.match(line) for line in lines), output
        assert "shop.orders: committed, 100 rows in " in lines[-1]
    assert loaded == [True, False]
    seen = site.rows("SELECT count(*), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (200, 2 * sum(range(100)))


def submit(site: Site, conf: dict[str, str], jar: str, attempt: str) -> tuple[RoundResult, str]:
    """Runs a round by spark-submit; returns its result and its standard output."""
    claim = site.claim(PATH)
    uri = plan_uri(site.work_uri, "lease", claim)
    write_json(uri, PlanFile(claim, "lease", site.config.client.bootstrap).to_json())
    properties = {
        "spark.sluice.datalake.iceberg.type": "hadoop",
        "spark.sluice.datalake.iceberg.warehouse": str(site.warehouse),
        **conf,
    }
    command = [
        str(spark_submit()), "--master", "local[1]", "--jars", jar,
        *(f"--conf={name}={value}" for name, value in properties.items()),
        str(driver_script()), "--plan", uri, "--attempt", attempt,
    ]  # fmt: skip
    log, output = Path(site.work_uri) / f"{attempt}.log", Path(site.work_uri) / f"{attempt}.out"
    with log.open("wb") as err, output.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=err, timeout=240, check=False)
    assert done.returncode == 0, log.read_text()[-3000:]
    content = read_json(result_uri(uri, attempt))
    assert content is not None
    site.client.tiering.finished(claim)
    # spark-submit prints here what its Python driver logs, and Java what it warns of.
    said = re.sub(r"^[\d-]+ [\d:,]+ ", "", output.read_text(), flags=re.MULTILINE)
    return RoundResult.from_json(content), said


@pytest.mark.parametrize("kind", ["missing", "empty", "other bytes", "other jars"])
def test_java_says_nothing_about_an_archive_it_refuses(
    archive: Path, tmp_path: Path, kind: str
) -> None:
    given = tmp_path / "given.jsa"
    if kind == "empty":
        given.write_bytes(b"")
    elif kind == "other bytes":
        given.write_bytes(b"no archive" * 100_000)
    elif kind == "other jars":
        given = archive
    py4j = next(pyspark_jars().glob("py4j-*.jar"))
    words = [java(), *options_to_read(given).split(), "-cp", str(py4j)]
    plain = [java(), "-cp", str(py4j)]
    done, expected = (
        subprocess.run(
            [*command, "py4j.GatewayServer", "--help"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        for command in (words, plain)
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        expected.returncode,
        expected.stdout,
        expected.stderr,
    )
