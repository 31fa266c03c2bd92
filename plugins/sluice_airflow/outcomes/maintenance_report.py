"""What a run that maintained tables says of them: lines, XCom, error. Does not import Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice.masking import mask
from sluice.quantities import counted
from sluice.rounds.records.maintenance import TableReport

LINES_MAX = 50
"""Tables that the XCom names."""
LINE_MAX = 300
"""Characters of a line in the XCom."""
PROBLEM_MAX = 1000
"""Characters of a problem in the error of the task."""


def sorted_reports(
    reports: Sequence[TableReport], secrets: Sequence[str] = ()
) -> list[TableReport]:
    """The newest report of each table: those with a problem first, then those with needs.

    :param secrets: values to mask in the texts.
    """
    newest = [
        replace(
            report,
            line=mask(report.line, secrets),
            problems=tuple(mask(problem, secrets) for problem in report.problems),
        )
        for report in {report.table: report for report in reports}.values()
    ]
    return sorted(newest, key=lambda one: (not one.problems, not one.needs, one.table))


def summary_of(reports: Sequence[TableReport], folder: str, *, applied: bool) -> dict[str, Any]:
    """The XCom ``report``: at most about 16 kB, however many tables there are.

    :param reports: sorted, one of each table.
    :param folder: where the complete reports are.
    """
    numbers: Counter[str] = Counter()
    for report in reports:
        numbers.update(report.numbers or {})
    lines = [_short(report.line) for report in reports[:LINES_MAX]]
    return {
        "applied": applied,
        "tables": len(reports),
        "needed": sum(bool(report.needs) for report in reports),
        "problems": sum(bool(report.problems) for report in reports),
        "numbers": dict(numbers),
        "lines": lines,
        "lines_left_out": len(reports) - len(lines),
        "folder": folder,
    }


def _short(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 3]}..."


def summary_line(summary: dict[str, Any]) -> str:
    """One line about all tables."""
    tables = counted(summary["tables"], "table")
    if not summary["applied"]:
        return f"{tables}, {summary['needed']} of them with a need; a dry run changes nothing"
    return f"{tables}, {summary['needed']} with a need, {summary['problems']} with a problem"


def problems_text(reports: Sequence[TableReport], why_missing: str = "") -> str:
    """The error of a task: each table with each of its problems, one a line. Empty: there is none.

    :param reports: sorted, one of each table.
    :param why_missing: why tables have no report.
    """
    failed = [report for report in reports if report.problems]
    lines = [
        f"{report.table}: {problem[:PROBLEM_MAX]}"
        for report in failed
        for problem in report.problems
    ]
    if failed:
        count = f"{len(failed)} of {counted(len(reports), 'table')}"
        lines = [f"{count} could not be maintained completely", *lines]
    if why_missing:
        lines.insert(0, why_missing)
    return "\n".join(lines)
