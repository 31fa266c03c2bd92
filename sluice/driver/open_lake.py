"""Opens the lake of a configuration in a JVM, after the checks of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

from sluice.checks.lake import check_lake
from sluice.config import Config
from sluice.driver.jvm import Jvm, check_jvm
from sluice.lake.iceberg_catalog import IcebergLake


def checked_jvm(config: Config, jvm: Jvm | None = None) -> AbstractContextManager[Jvm]:
    """Checks the lake's settings and this machine; the JVM starts when the block is entered.

    :param jvm: a running JVM to use; None: the block starts one and ends it.
    :raises ConfigurationError: this machine lacks something.
    """
    check_lake(config)
    if jvm is not None:
        return nullcontext(jvm)
    check_jvm(config.tiering.jars)
    return _started(config.tiering.jars)


@contextmanager
def _started(jars: str) -> Iterator[Jvm]:
    with Jvm(jars) as java:
        yield java


def open_lake(
    config: Config, gateway: Any, hadoop_conf: Any = None
) -> AbstractContextManager[IcebergLake]:
    """Opens the lake through a JVM's gateway; the end of the block closes it.

    :param hadoop_conf: the JVM's Hadoop configuration to use; None: a new one.
    :raises ConfigurationError: the JVM has no Iceberg, or one that is too old.
    :raises LakeNotWritable: the catalog cannot be opened.
    """
    return closing(IcebergLake(gateway, config.datalake.iceberg, config.tiering, hadoop_conf))
