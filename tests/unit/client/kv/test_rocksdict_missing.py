"""Clients read KV snapshots without rocksdict, which only servers install."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

ROOT = Path(__file__).resolve().parents[4]
READ = """
    import json, sys
    sys.modules["rocksdict"] = None
    import sluice.client, sluice.driver.local, sluice.lake, sluice.rounds.round.round
    from pathlib import Path
    from sluice.client.kv.sst_values import read_values
    arrays = list(read_values(Path(sys.argv[1]), "the snapshot", 1 << 20))
    print(json.dumps(sum(map(len, arrays))))
"""


def written(folder: Path) -> Path:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    db: Any = Rdict(str(folder), options)
    for number in range(1000):
        db[number.to_bytes(8, "big")] = b"value %d" % number
    db.flush()
    db.close()
    # what a checkpoint has not: the log of what is in no SST file
    for path in folder.glob("*.log"):
        path.unlink()
    return folder


def read(folder: Path) -> Any:
    command = [sys.executable, "-c", textwrap.dedent(READ), str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_snapshot_is_read_from_its_files(tmp_path: Path) -> None:
    assert read(written(tmp_path / "db")) == 1000
