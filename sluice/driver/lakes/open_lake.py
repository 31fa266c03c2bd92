"""Opens the lake of a configuration in a JVM, after the checks of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

from sluice.checks.findings import run_checks
from sluice.checks.lake import CheckScope, check_lake, lake_checks
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm, check_jvm
from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.lake import IcebergLake


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
    config: Config, gateway: Any, hadoop_conf: Any = None, keys_uri: str = ""
) -> AbstractContextManager[IcebergLake]:
    """Opens the lake through a JVM's gateway; the end of the block closes it.

    :param hadoop_conf: the JVM's Hadoop configuration to use; None: a new one.
    :param keys_uri: how the addresses of files begin through which executors get renewed keys of
        the storage; empty: there are no executors.
    :raises ConfigurationError: the JVM has no Iceberg, or one that is too old.
    :raises LakeNotWritable: the catalog cannot be opened.
    """
    return closing(
        IcebergLake(gateway, config.datalake.iceberg, config.tiering, hadoop_conf, keys_uri)
    )


@contextmanager
def usable_lake(config: Config, gateway: Any) -> Iterator[IcebergLake]:
    """As ``open_lake``, for commands: an error of the lake as a whole names the next step.

    :raises LakeNotWritable: as :func:`unusable`, or of one table.
    """
    try:
        context = open_lake(config, gateway)
    except LakeNotWritable as error:
        raise _advised(error, _remedy(config)) from error
    with context as lake:
        try:
            yield lake
        except LakeNotWritable as error:
            if (whole := unusable(config, error)) is not None:
                raise whole from error
            raise


def unusable(config: Config, error: Exception) -> LakeNotWritable | None:
    """The error with the next step, if it is one of the lake as a whole; checks the lake for that.

    The checks follow the failure: they know less than the JVM, which may use a proxy.

    :return: None if other tables may still be used. Its detail ``lake_unusable`` is True.
    """
    if not isinstance(error, LakeNotWritable) or error.details.get("committed"):
        return None
    if error.details.get("lake_unusable"):
        return error
    remedy = _remedy(config)
    return _advised(error, remedy) if remedy else None


def _remedy(config: Config) -> str:
    """What to do about the first check of catalog and warehouse that fails; empty if none does."""
    checks = lake_checks(config, CheckScope(hdfs=False))
    for check, finding in zip(checks, run_checks(checks, config.secrets()), strict=True):
        if finding.ok is False:
            return f"; {finding.what}: {check.remedy or finding.seen}"
    return ""


def _advised(error: LakeNotWritable, remedy: str) -> LakeNotWritable:
    end = "; `sluice doctor` with the same options checks the lake"
    return LakeNotWritable(f"{error}{remedy}{end}", **{**error.details, "lake_unusable": True})
