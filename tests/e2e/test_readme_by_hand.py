"""The README's way to read the lake by hand, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import ROOT, SLUICE, environment, served, sluice

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_lake_is_read_as_the_readme_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    [by_hand] = [block for block in blocks if "sluice tier" in block]
    [reading] = [block for block in blocks if block.startswith("spark-sql ")]
    command, printed = re.split(r"(?<=[^\\])\n", reading, maxsplit=1)
    [schema] = re.findall(r'--schema "(.*)"', by_hand)
    [content] = re.findall(r"printf '(.*)' > orders.csv", by_hand)
    (tmp_path / "orders.csv").write_text(content.replace("\\n", "\n"))
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/jars").symlink_to(environment()["SLUICE_TIERING_JARS"])
    with served(tmp_path / "data") as server:
        for arguments in (
            ("create-table", "shop.orders", "--schema", schema),
            ("append", "shop.orders", str(tmp_path / "orders.csv")),
            ("tier", "shop.orders", "--warehouse", str(tmp_path / "lake")),
        ):
            done = sluice(*arguments, timeout_s=300, SLUICE_CLIENT_BOOTSTRAP=server.address)
            assert done.returncode == 0, done.stderr
    path = f"{Path(SLUICE).parent}{os.pathsep}{os.environ['PATH']}"
    read = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment({"PATH": path}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert read.stdout == printed, (tmp_path / "spark-sql.log").read_text()[-3000:]
    assert not (tmp_path / "metastore_db").exists(), "it leaves no Hive metastore behind"
