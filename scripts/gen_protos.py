"""Generates sluice/wire/*_pb2.py from protos/; with --check only compares, for CI."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
ENDINGS = ("_pb2.py", "_pb2.pyi")


def generate(out: Path) -> list[Path]:
    sources = sorted(str(p.relative_to(PROTOS)) for p in PROTOS.rglob("*.proto"))
    args = ["protoc", f"-I{PROTOS}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    if protoc.main(args) != 0:
        raise SystemExit("protoc failed: see its message above")
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
            f"generated code differs from protos/: {', '.join(map(str, stale))}; run 'make protos'"
        )
    print("generated code matches protos/")


if __name__ == "__main__":
    main()
