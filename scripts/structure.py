"""Prints how the product is built: rooms, floors, lines, imports, arguments, and what moved.

A *room* is a folder of modules. Its *floors* are the longest chain of imports among its own
modules and rooms. A module's *fan-in* is the number of modules that import it.

    python scripts/structure.py                  the working tree
    python scripts/structure.py 7f523c92         a commit
    python scripts/structure.py 7f523c92 HEAD    both, side by side
    python scripts/structure.py --moves 7f523c92 the files that moved since
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREES = (
    "sluice",
    "plugins/sluice_airflow",
    "plugins/fluss_sluice",
    "spark_jobs/sluice_spark",
    "spark_jobs/pyspark_sluice",
)
ROOM_FILES_MAX = 15


@dataclass
class Module:
    """One file of the product; ``room`` is its folder, as a dotted name."""

    name: str
    room: str
    lines: int
    tree: ast.Module
    imports: set[str] = field(default_factory=set)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def argument_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The arguments that a caller may pass, without ``self`` and ``cls``."""
    taken = function.args
    names = [a.arg for a in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of the product that a module imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
            names_of_package = {alias.name for alias in node.names} - {
                name.rpartition(".")[2] for name in inner
            }
            found |= inner
            if node.module in known and names_of_package:
                found.add(node.module)
    return found


class Structure:
    """The modules of one tree and what follows from their imports."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for tree in TREES:
            base = root / Path(tree).parent
            for path in sorted((root / tree).rglob("*.py")):
                if "_pb2" in path.name:
                    continue
                parts = path.relative_to(base).with_suffix("").parts
                package = path.name == "__init__.py"
                name = ".".join(parts[:-1] if package else parts)
                text = path.read_text()
                room = ".".join(parts[:-1])
                self.modules[name] = Module(name, room, text.count("\n"), ast.parse(text))
        known = set(self.modules)
        for module in self.modules.values():
            module.imports = imported(module.tree, known) - {module.name}

    @cached_property
    def rooms(self) -> dict[str, list[Module]]:
        """The files of each room, without its ``__init__``."""
        found: dict[str, list[Module]] = {}
        for module in self.modules.values():
            found.setdefault(module.room, [])
            if module.name != module.room:
                found[module.room].append(module)
        return found

    def floors(self, room: str) -> int:
        """The longest chain of imports among the children of a room."""
        prefix = room + "."

        def child(name: str) -> str:
            return name.removeprefix(prefix).partition(".")[0] if name.startswith(prefix) else ""

        below: dict[str, set[str]] = {}
        for module in self.modules.values():
            mine = child(module.name)
            if mine:
                theirs = {child(name) for name in module.imports} - {"", mine}
                below.setdefault(mine, set()).update(theirs)
        heights: dict[str, int] = {}

        def height(name: str, above: frozenset[str]) -> int:
            if name not in heights:
                lower = below.get(name, set()) - above
                heights[name] = 1 + max((height(n, above | {name}) for n in lower), default=0)
            return heights[name]

        return max((height(name, frozenset({name})) for name in below), default=0)

    @cached_property
    def fan_in(self) -> Counter[str]:
        return Counter(name for module in self.modules.values() for name in module.imports)

    @cached_property
    def most_arguments(self) -> list[tuple[int, str]]:
        found = [
            (argument_count(function), f"{module.name}.{function.name}")
            for module in self.modules.values()
            for function in functions(module.tree)
        ]
        return sorted(found, reverse=True)

    @cached_property
    def same_beginnings(self) -> list[str]:
        """Files of one room of which one's name is the beginning of the other's."""
        found = []
        for room, modules in self.rooms.items():
            names = sorted(module.name.rpartition(".")[2] for module in modules)
            found += [
                f"{room}: {short}, {long}"
                for short in names
                for long in names
                if long != short and long.startswith((short + "_", short + "s"))
            ]
        return found

    def figures(self) -> dict[str, int | float]:
        modules = list(self.modules.values())
        product = [m for m in modules if m.name.startswith("sluice.") or m.name == "sluice"]
        lengths = sorted(
            function.end_lineno - function.lineno + 1
            for module in modules
            for function in functions(module.tree)
            if function.end_lineno is not None
        )
        sizes = [len(found) for found in self.rooms.values()]
        importers = [self.fan_in[module.name] for module in modules]
        own = [len(module.imports) for module in modules]
        return {
            "lines of sluice, without testing": sum(
                m.lines for m in product if not m.name.startswith("sluice.testing")
            ),
            "lines of sluice.testing": sum(
                m.lines for m in product if m.name.startswith("sluice.testing")
            ),
            "lines of sluice_airflow": sum(
                m.lines for m in modules if m.name.startswith("sluice_airflow")
            ),
            "modules": len(modules),
            "lines of a module, median": statistics.median(m.lines for m in modules),
            "modules of 500 lines or more": len([m for m in modules if m.lines >= 500]),
            "rooms": len(sizes),
            "files of the largest room": max(sizes),
            f"rooms of more than {ROOM_FILES_MAX} files": len(
                [size for size in sizes if size > ROOM_FILES_MAX]
            ),
            "most floors of a room": max(self.floors(room) for room in self.rooms),
            "pairs of files told apart by a suffix": len(self.same_beginnings),
            "most imports of own modules": max(own),
            "imports of own modules, mean": round(statistics.mean(own), 1),
            "largest fan-in": max(importers),
            "modules with one importer": importers.count(1),
            "lines of a function, p95": lengths[int(len(lengths) * 0.95)],
            "lines of a function, most": lengths[-1],
            "arguments of a function, most": self.most_arguments[0][0],
            "functions of more than 10 arguments": len(
                [count for count, _ in self.most_arguments if count > 10]
            ),
        }


def structure_of(revision: str | None) -> Structure:
    """The structure of a commit, or of the working tree."""
    if revision is None:
        return Structure(ROOT)
    trees = [tree for tree in TREES if _has(revision, tree)]
    archive = subprocess.run(
        ["git", "archive", revision, *trees], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return Structure(Path(folder))


def _has(revision: str, tree: str) -> bool:
    shown = subprocess.run(["git", "cat-file", "-e", f"{revision}:{tree}"], cwd=ROOT, check=False)
    return shown.returncode == 0


def print_rooms(structure: Structure) -> None:
    print(f"{'room':44} files  lines floors")
    for room, modules in sorted(structure.rooms.items()):
        lines = sum(module.lines for module in modules)
        mark = "  more than 15 files" if len(modules) > ROOM_FILES_MAX else ""
        print(f"{room:44} {len(modules):5} {lines:6} {structure.floors(room):6}{mark}")
    print("\nlargest fan-in")
    for name, count in structure.fan_in.most_common(10):
        print(f"{count:5} {name}")
    print("\nmost imports of own modules")
    by_imports = sorted(structure.modules.values(), key=lambda m: -len(m.imports))
    for module in by_imports[:10]:
        print(f"{len(module.imports):5} {module.name}")
    print("\nmost arguments")
    for count, name in structure.most_arguments[:10]:
        print(f"{count:5} {name}")
    print("\nlongest modules")
    for module in sorted(structure.modules.values(), key=lambda m: -m.lines)[:10]:
        print(f"{module.lines:5} {module.name}")
    print("\nfiles of one room that only a suffix tells apart")
    for line in structure.same_beginnings:
        print(f"      {line}")


def print_moves(old: str) -> None:
    shown = subprocess.run(
        ["git", "diff", "-M40%", "-l0", "--name-status", "--diff-filter=R", old, "--"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for line in shown.splitlines():
        _, before, after = line.split("\t")
        print(f"{before} -> {after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", help="none, one or two commits")
    parser.add_argument("--moves", metavar="OLD", help="list the files that moved since OLD")
    asked = parser.parse_args()
    if len(asked.revisions) > 2:
        parser.error("at most two commits can stand side by side")
    if asked.moves:
        print_moves(asked.moves)
        return
    found = [structure_of(revision) for revision in asked.revisions or [None]]
    rows = [structure.figures() for structure in found]
    for label in rows[0]:
        print(f"{label:44}" + "".join(f"{row[label]:>10}" for row in rows))
    if len(found) == 1:
        print()
        print_rooms(found[0])


if __name__ == "__main__":
    main()
