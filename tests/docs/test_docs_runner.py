"""The runner of pages on small pages: what it accepts, what it finds, and what it writes."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Page, claimed, commands
from tests.docs.outputs import matches
from tests.docs.runner import Outcome, has_runs, main, run_page, starts_a_jvm, write
from tests.docs.session import aligned
from tests.support.programs.living import living


def a_page(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(textwrap.dedent(text))
    return Page(path, tmp_path)


def run(tmp_path: Path, text: str, timeout_s: float = 60) -> Outcome:
    return run_page(a_page(tmp_path, text), tmp_path / "run", timeout_s)


def console(*lines: str, above: str = "") -> str:
    return "\n".join(["# Page", "", *([above] if above else []), "```console", *lines, "```", ""])


def test_the_folder_variables_and_jobs_carry_over(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        """\
        <!-- setup
        hidden=1
        -->

        ```bash
        mkdir there
        cd there
        number=2   # readers see this one
        cat > lines <<'END'
        a'b
        END
        sleep 60 &
        ```

        <!-- file: there/rows.csv -->
        ```csv
        id
        1
        ```

        - In a list:

          ```console
          $ echo $hidden $number; \\
              cat rows.csv
          1 2
          id
          1
          $ cat lines
          a'b
          $ pwd
          /home/you/there
          $ jobs -r | wc -l
          1
          ```
        """,
    )
    assert outcome.problems == []


def test_another_output_is_shown_as_lines_of_the_page(tmp_path: Path) -> None:
    outcome = run(tmp_path, console("$ printf 'one\\ntwo\\n'", "one", "2", "$ echo on", "on"))
    assert outcome.problems == ["page.md:5: another output\n  one\n- 2\n+ two"]


@pytest.mark.parametrize("shown", [["x"], []])
def test_an_output_more_or_less_is_found(shown: list[str], tmp_path: Path) -> None:
    command = "$ true" if shown else "$ echo x"
    [problem] = run(tmp_path, console(command, *shown)).problems
    assert problem == f"page.md:5: another output\n{'-' if shown else '+'} x"


def test_an_exit_code_must_be_announced(tmp_path: Path) -> None:
    [problem] = run(tmp_path, console("$ ls none 2>&1 | cat", "...", "$ false")).problems
    assert problem.startswith("page.md:4: exit code 2, not 0\n")
    for code, fits in ((1, True), (2, False)):
        outcome = run_page(
            a_page(tmp_path, console("$ true", "$ false", above=f"<!-- exit code {code} -->")),
            tmp_path / f"run{code}",
        )
        assert (outcome.problems == []) == fits
    # Only the last command of the block may end so.
    text = console("$ false", "$ false", above="<!-- exit code 1 -->")
    assert run_page(a_page(tmp_path, text), tmp_path / "first").problems


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    [problem] = run(
        tmp_path,
        console("$ export OF_THIS_TEST=1", "$ setsid sleep 61 & sleep 62", "$ true"),
        timeout_s=0.5,
    ).problems
    assert problem.startswith("page.md:5: no end after 0.5 s")
    assert time.monotonic() - began < 30
    assert not living(lambda env: "OF_THIS_TEST" in env)


def test_a_command_that_ends_the_shell_ends_the_page(tmp_path: Path) -> None:
    [problem] = run(tmp_path, console("$ exit 0", "$ true")).problems
    assert problem.startswith("page.md:4: it ended the shell")


def test_a_server_is_ready_before_the_next_command(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        """\
        ```console
        $ sluice serve --data-dir ./data &
        sluice: ready at grpc://127.0.0.1:9123, data in ./data
        $ sluice create-table shop.orders --schema "id BIGINT NOT NULL"
        ...
        $ sluice status --format json | grep table_id
        "table_id": 0,
        ```

        ```python
        from sluice.client import connect
        with connect("grpc://127.0.0.1:9123") as client:
            print(client.admin.list_databases())
        ```

        <!-- output -->
        ```text
        ['fluss', 'shop']
        ```

        <!-- exit code 1 -->
        ```python
        raise SystemExit(connect is None or 1)
        ```

        <!-- run by tests/other.py -->
        ```bash
        false
        ```

        <!-- not run: it is slow -->
        ```bash
        false
        ```
        """,
    )
    assert outcome.problems == []


def test_an_error_in_python_names_the_line_of_the_page(tmp_path: Path) -> None:
    [problem] = run(tmp_path, "# Page\n\n```python\nx = 1\nx.y\n```\n").problems
    assert problem.startswith("page.md:3: exit code 1, not 0\n")
    assert 'File "page.md", line 5' in problem


def test_the_outputs_are_written_into_the_page(tmp_path: Path) -> None:
    page = a_page(
        tmp_path,
        """\
        - In a list:

          ```console
          $ printf 'a\\n\\nb\\n'
          old
          $ echo sent in 2 s, 2026-01-01 12:00:00
          sent  in 5 min, 2020-12-31 01:02:03
          $ echo new
          ```

        ```python
        print(1)
        ```

        <!-- output -->
        ```text
        0
        ```
        """,
    )
    assert write(page, run_page(page, tmp_path / "first"))
    page = Page(page.path, tmp_path)
    assert page.text == textwrap.dedent(
        """\
        - In a list:

          ```console
          $ printf 'a\\n\\nb\\n'
          a

          b
          $ echo sent in 2 s, 2026-01-01 12:00:00
          sent  in 5 min, 2020-12-31 01:02:03
          $ echo new
          new
          ```

        ```python
        print(1)
        ```

        <!-- output -->
        ```text
        1
        ```
        """
    )
    assert not write(page, run_page(page, tmp_path / "second"))


def test_the_commands_for_pages_compare_and_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writes, compares = [command.text for command in claimed("CONTRIBUTING.md", __file__)]
    assert compares == ".venv/bin/python -m tests.docs.runner docs/status.md"
    made = subprocess.run(
        ["make", "-n", *writes.split()[1:]],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.splitlines()[-1] == compares.replace("runner ", "runner --write ")
    page = a_page(tmp_path, console("$ echo x", "y")).path
    assert main([str(page)]) == 1
    assert "- y\n+ x" in capsys.readouterr().out
    assert "y" in page.read_text()
    assert main(["--write", str(page)]) == 0
    assert main([str(page)]) == 0
    assert page.read_text() == console("$ echo x", "x")
    page.write_text(console("$ false"))
    assert main(["--write", str(page)]) == 1


def test_a_page_that_starts_a_jvm_is_known(tmp_path: Path) -> None:
    for command, starts in (
        ("sluice tier shop.orders", True),
        ("sluice --debug sql 'SELECT 1'", True),
        ("sluice status # tier", False),
    ):
        page = a_page(tmp_path, f"```bash\n{command}\n```\n")
        assert has_runs(page)
        assert starts_a_jvm(page) == starts
    page = a_page(tmp_path, "<!-- run by x.py -->\n```bash\nsluice tier t\n```\n")
    assert not has_runs(page)
    assert not starts_a_jvm(page)


def test_commands_of_several_lines(tmp_path: Path) -> None:
    text = "```bash\n# first\na \\\n  b\n\nfor x in 1; do\n  c 'd\n e'\ndone\nf <<E\ng\nE\nh\n```\n"
    [block] = a_page(tmp_path, text).blocks
    found = [(command.line, command.text) for command in commands(block)]
    assert found == [
        (3, "a \\\n  b"),
        (6, "for x in 1; do\n  c 'd\n e'\ndone"),
        (10, "f <<E\ng\nE"),
        (13, "h"),
    ]


@pytest.mark.parametrize(
    ("expected", "seen", "fits"),
    [
        ("a  b\n\u2500\u2500\u2500", "a b\n\u2500\u2500\u2500\u2500", True),
        ("3 rows, 1 min 10 s", "3 rows, 0.5 s", True),
        ("3 rows, 1 s", "4 rows, 1 s", False),
        ("2 rows appended in 0.5 s", "2 rows appended in 1 min 3 s, after the first 7", False),
        ("2 rows appended in 0.5 s", "2 rows appended in 1 min 3 s", True),
        ("committed to the lake, 2.7 s", "committed to the lake, 12 s", True),
        ("t  Scheduled  16 s ago  in 2 min", "t Scheduled 1 min ago in 1 min", True),
        ("it is due in 2 min 57 s", "it is due in 1 min", True),
        ("it is due in 2 min 57 s", "it is due in 2 h", False),
        ("freshness is 3 min", "freshness is 5 min", False),
        ("--wait 3min waits", "--wait 5min waits", False),
        ("FRESHNESS 3 min (default)", "FRESHNESS 30 s (default)", False),
        ("at 2026-11-21 23:02:12Z", "at 2026-11-22 01:00:00Z", True),
        ("at 2026-11-21 23:02:12Z", "at never", False),
        ('"lag_ms": 5, "rows": 3', '"lag_ms": 71, "rows": 3', True),
        ('"lag_ms": 5, "rows": 3', '"lag_ms": null, "rows": 3', False),
        ("snapshot 7152145095935694796", "snapshot 72253033439846907", True),
        ("day=2026-11-21", "day=2026-11-22", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("...\nb\n...\nb", "a\nb\nc", False),
        ("...", "", True),
        ("took ... rows", "took 5 rows", True),
        ("took ... rows", "took 5 rows\nmore", False),
        ("[1] 4711\na", "a", True),
        ("a", "a\n\n", True),
        ("a", "b", False),
    ],
)
def test_outputs_that_differ_only_in_what_varies(expected: str, seen: str, fits: bool) -> None:
    assert matches(expected.splitlines(), seen.splitlines()) == fits


def test_columns_stay_in_their_places_behind_a_folder_of_another_length() -> None:
    assert aligned("x  /a/long/one, /a/long/one  y\n/a/long/one  z\n", "/a/long/one", "/b") == (
        "x  /b, /b" + " " * 20 + "y\n/b" + " " * 11 + "z\n"
    )
    assert aligned("/b  y", "/b", "/a/long/one") == "/a/long/one  y"
