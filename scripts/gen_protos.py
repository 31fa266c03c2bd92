"""Generates sluice/wire/*_pb2.py from protos/. With --check it only compares, for CI.

protobuf runs code that its own version or an older one generated, never that of a newer one. So
protoc is that of the oldest protobuf in pyproject.toml. scripts/setup.sh installs it, with its hash
from protos/requirements.lock, into its own folder, because .venv has a newer protobuf.
"""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PROTOC = ROOT / ".cache" / "protoc"
ENDINGS = ("_pb2.py", "_pb2.pyi")
TIMEOUT_S = 60


def generate(out: Path) -> list[Path]:
    sources = sorted(str(p.relative_to(PROTOS)) for p in PROTOS.rglob("*.proto"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            *(f"-I{PROTOS}", f"--python_out={out}", f"--pyi_out={out}", *sources),
        ],
        env={**os.environ, "PYTHONPATH": str(PROTOC)},
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit("protoc failed: see its message above; `make setup` installs protoc")
    return [Path(name).with_name(Path(name).stem + end) for name in sources for end in ENDINGS]


def main() -> None:
    if "--check" not in sys.argv[1:]:
        for name in generate(ROOT):
            print(name)
        return
    with tempfile.TemporaryDirectory() as tmp:
        stale = [
            name
            for name in generate(Path(tmp))
            if not (ROOT / name).is_file() or not filecmp.cmp(Path(tmp, name), ROOT / name, False)
        ]
    if stale:
        raise SystemExit(
            f"generated code differs from protos/: {', '.join(map(str, stale))}; run `make protos`"
        )
    print("generated code matches protos/")


if __name__ == "__main__":
    main()
