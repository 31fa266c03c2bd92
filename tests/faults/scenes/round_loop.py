"""Rounds of one table in one process with one JVM: a round for each line that it reads.

It prints a line when it is ready, and one for each round: its result, or its error.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from sluice.config import ClientConfig, Config, DatalakeConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import SluiceError, TableNotDue
from sluice.model import TablePath

DUE_S = 60.0


def main(text: str) -> None:
    given = json.loads(text)
    config = Config(
        client=ClientConfig(bootstrap=given["bootstrap"]),
        datalake=DatalakeConfig("iceberg", given["lake"]),
        tiering=TieringConfig(jars=given["jars"]),
    )
    with Jvm(config.tiering.jars) as jvm:
        print("{}", flush=True)
        for _ in sys.stdin:
            print(json.dumps(_round(config, TablePath(*given["table"]), jvm)), flush=True)


def _round(config: Config, path: TablePath, jvm: Jvm) -> dict[str, Any]:
    deadline = time.monotonic() + DUE_S
    while True:
        try:
            return tier_once(config, path, jvm=jvm).to_json()
        except TableNotDue as error:
            if time.monotonic() > deadline:
                return {"error": repr(error)}
            time.sleep(0.05)
        except SluiceError as error:
            return {"error": repr(error)}


if __name__ == "__main__":
    main(sys.argv[1])
