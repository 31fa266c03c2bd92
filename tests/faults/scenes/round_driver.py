"""In place of spark-submit, by its command line: a whole round into Iceberg, without Spark's start.

The round, its commit and its files are the real ones; only threads stand for executors. With
``--without-fence`` every commit is let through: the control that shows what the fence is good for.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import Any

from sluice.client import connect
from sluice.client.tiering.log_source import ClientLogSource
from sluice.config import load_config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.threads import ThreadRunner
from sluice.lake.iceberg.commit.table_commits import TableCommits
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableInfo
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import PackFile, mark_running
from sluice.rounds.records.plan_file import PlanFile
from sluice.rounds.records.result import RoundResult, failure_uri, result_uri
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.reasons import failure_of

PREFIX = "spark.sluice."


class _Open:
    """In place of the fence: lets every commit through."""

    def validate(self, ancestors: Any) -> bool:
        return True

    def errorMessage(self) -> str:  # noqa: N802  (a method of the Java interface)
        return "never said"

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


def main(arguments: list[str]) -> int:
    uri = _plan(arguments)
    attempt = arguments[arguments.index("--attempt") + 1]
    if "--without-fence" in arguments:
        TableCommits._fence = lambda *_: _Open()  # type: ignore[assignment]
        TableCommits._is_newest = lambda *_: True  # type: ignore[assignment]
    try:
        result = _round(uri, attempt, arguments)
    except Exception as error:
        write_json(failure_uri(uri, attempt), failure_of(error).to_json())
        raise
    write_json(result_uri(uri, attempt), result.to_json())
    return 0


def _plan(arguments: list[str]) -> str:
    """The only plan: that of the command line, or of the pack that a tier task submits."""
    if "--plan" in arguments:
        return arguments[arguments.index("--plan") + 1]
    content = read_json(arguments[arguments.index("--pack") + 1])
    [uri] = PackFile.from_json(content or {}).plans
    mark_running(uri, arguments[arguments.index("--attempt") + 1])
    return uri


def _round(uri: str, attempt: str, arguments: list[str]) -> RoundResult:
    settings = dict(word.split("=", 1) for word in arguments if word.startswith(PREFIX))
    config = load_config(overrides={k.removeprefix(PREFIX): v for k, v in settings.items()})
    plan = PlanFile.from_json(read_json(uri) or {})
    client_config = replace(config.client, bootstrap=plan.bootstrap)

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return ThreadRunner(ClientLogSource(client_config, plan.claim.path, info), writers, 2)

    with (
        connect(client_config) as client,
        Jvm(config.tiering.jars) as java,
        closing(IcebergLake(java.gateway, config.datalake.iceberg, config.tiering)) as lake,
    ):
        return run_round(plan.claim, RoundPorts(client.tiering, lake, runner), attempt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
