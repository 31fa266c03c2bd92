"""Runs the Python blocks of one page, one after the other, in one namespace.

``python_blocks.py FOLDER`` reads lines of ``FILE TAB PAGE TAB LINE`` from the pipe ``python.in``,
writes what a block prints to ``FILE.out``, and its exit code to the pipe ``python.out``.
"""

import contextlib
import sys
import traceback
from pathlib import Path
from typing import Any


def run(code: str, page: str, line: int, names: dict[str, Any]) -> int:
    try:
        exec(compile("\n" * line + code, page, "exec"), names)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(folder: Path) -> None:
    sys.path[0] = ""
    names: dict[str, Any] = {"__name__": "__main__"}
    with (folder / "python.in").open() as calls, (folder / "python.out").open("w") as answers:
        for call in calls:
            step, page, line = call.rstrip("\n").split("\t")
            with (
                Path(step + ".out").open("w", buffering=1) as out,
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(out),
            ):
                code = run(Path(step).read_text(), page, int(line), names)
            answers.write(f"{code}\n")
            answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
