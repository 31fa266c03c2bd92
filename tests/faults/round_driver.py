"""In place of spark-submit, by its command line: a whole round into Iceberg, without Spark's start.

The round, its commit and its files are the real ones; only threads stand for executors.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace

from sluice.client import connect
from sluice.client.log_source import ClientLogSource
from sluice.config import load_config
from sluice.driver.jvm import Jvm
from sluice.driver.threads import ThreadRunner
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.model import TableInfo
from sluice.rounds.files import PlanFile, read_json, result_uri, write_json
from sluice.rounds.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.round import run_round

PREFIX = "spark.sluice."


def main(arguments: list[str]) -> None:
    uri = arguments[arguments.index("--plan") + 1]
    attempt = arguments[arguments.index("--attempt") + 1]
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
        result = run_round(plan.claim, client.tiering, lake, runner, attempt=attempt)
    write_json(result_uri(uri, attempt), result.to_json())


if __name__ == "__main__":
    main(sys.argv[1:])
