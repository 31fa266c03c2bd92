"""Options and argument types that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluice.catalog_options import of_catalog
from sluice.config import Config, load_config
from sluice.errors import InvalidConfig, SluiceError
from sluice.model import TablePath
from sluice.model.durations import duration_ms

if TYPE_CHECKING:
    from sluice.client import Client

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

CONNECT_TIMEOUT_MS = 5_000
"""A user waits at the terminal, so a server that does not answer is reported soon."""

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Configuration file (TOML).",
)
bootstrap_option = click.option(
    "--bootstrap",
    metavar="ADDRESS",
    help="Address of the cluster: grpc://HOST:PORT or fluss://HOST:PORT."
    "  [default: client.bootstrap]",
)
spark_option = click.option(
    "--spark",
    metavar="VERSION",
    help="Version of Spark, for example 4.0.  [default: the installed one]",
)
format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or one JSON document for programs.",
)


def examples(*commands: str) -> str:
    """The end of a help text: a command on each line, which click does not wrap."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """--bootstrap and --config, with --warehouse if the command has it, as one ``settings``."""

    @functools.wraps(function)
    def command(*args: Any, bootstrap: str | None, config_file: str | None, **others: Any) -> Any:
        settings = Settings(bootstrap, config_file, others.pop("warehouse", None))
        return function(*args, settings=settings, **others)

    return bootstrap_option(config_option(command))


class TextType(_ParamType):
    """What a function makes of a text; its error says what is wrong."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except SluiceError as error:
            self.fail(str(error), param, ctx)


class WholeNumber(click.IntRange):
    """A number in a range; its error says what to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            upper = "or more" if self.max is None else f"to {self.max}"
            self.fail(f"{value!r} is not a whole number, {self.min} {upper}", param, ctx)


def _duration(text: str) -> int:
    """Fluss reads a number without a unit as milliseconds. A user rarely means that."""
    if text.strip().isdecimal() and int(text):
        raise InvalidConfig(f"{text!r} has no unit; write for example {text}s or {text}min")
    try:
        return duration_ms("", text)
    except InvalidConfig:
        raise InvalidConfig(f"{text!r} is not a duration; write for example 30s or 3min") from None


TABLE_PATH = TextType("DB.TABLE", TablePath.parse)
DURATION = TextType("DURATION", _duration)
"""A duration in Fluss's form, such as 30s, 3 min or 7d; the value is in milliseconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options by which a command finds its settings, its cluster and its lake."""

    bootstrap: str | None
    config_file: str | None
    warehouse: str | None = None

    def config(self, **tiering: int | None) -> Config:
        """The settings, as ``configuration``; with options of the section [tiering]."""
        overrides = {"client.bootstrap": self.bootstrap, **lake_overrides(self.warehouse)}
        given = {f"tiering.{key}": value for key, value in tiering.items()}
        return configuration(self.config_file, {**overrides, **given})

    def connect(self) -> AbstractContextManager[Client]:
        """A client of the cluster, as ``cluster.connect``."""
        config = self.config()
        from sluice.cli.terminal.cluster import connect

        return connect(config.client)

    def lake_config(self, *, must_exist: bool = True, **tiering: int | None) -> Config:
        """The settings of a command that needs a lake; checks --warehouse as ``check_warehouse``.

        :raises click.UsageError: no lake is configured.
        """
        check_warehouse(self.warehouse, must_exist=must_exist)
        return require_lake(self.config(**tiering))


def require_lake(config: Config) -> Config:
    """The same settings. :raises click.UsageError: no lake is configured."""
    if not of_catalog(config.datalake.iceberg):
        raise click.UsageError("give --warehouse PATH, or the lake's catalog in --config FILE")
    return config


warehouse_option = click.option(
    "--warehouse",
    metavar="PATH",
    help="Folder of the lake, as an Iceberg catalog of type hadoop. Replaces [datalake].",
)


def lake_overrides(warehouse: str | None) -> dict[str, str]:
    """The settings that --warehouse replaces."""
    if warehouse is None:
        return {}
    location = warehouse if "://" in warehouse else str(Path(warehouse).absolute())
    return {
        "datalake.format": "iceberg",
        "datalake.iceberg.type": "hadoop",
        "datalake.iceberg.warehouse": location,
    }


def check_warehouse(warehouse: str | None, *, must_exist: bool = True) -> None:
    """Checks the folder of --warehouse, if it is a local one.

    :param must_exist: the command reads the lake; else it creates a missing folder.
    :raises click.BadParameter: the path is empty, is or is below a file, or does not exist.
    """
    if warehouse is not None and not warehouse.strip():
        raise click.BadParameter("the path is empty; give a folder", param_hint="--warehouse")
    folder = None if warehouse is None else local_folder(warehouse)
    if folder is None:
        return
    problem = ""
    if folder.exists() and not folder.is_dir():
        problem = f"{warehouse} is a file; give a folder"
    elif not must_exist and (above := _file_above(folder)) is not None:
        problem = f"{above} is a file, so folder {warehouse} cannot be created; give a folder"
    elif must_exist and not folder.exists():
        problem = f"folder {warehouse} does not exist; give the folder that `sluice tier` wrote to"
    if problem:
        raise click.BadParameter(problem, param_hint="--warehouse")


def _file_above(folder: Path) -> Path | None:
    """The file that stands where a folder would have to be created."""
    existing = next((path for path in folder.parents if path.exists()), None)
    return existing if existing is not None and not existing.is_dir() else None


def local_folder(warehouse: str) -> Path | None:
    """The local folder that a warehouse is; None if it is in other storage, as ``s3://``."""
    scheme, separator, path = warehouse.partition("://")
    if not separator:
        return Path(warehouse)
    return Path(path) if scheme.lower() == "file" and path.startswith("/") else None


def configuration(
    config_file: str | None, overrides: Mapping[str, str | int | bool | None] | None = None
) -> Config:
    """The settings: options override variables, which override the file.

    :raises ConfigurationError: names the setting, its value and what is allowed.
    """
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    config = load_config(config_file, os.environ, given)
    first_ms = min(config.client.connect_timeout_ms, CONNECT_TIMEOUT_MS)
    return replace(config, client=replace(config.client, connect_timeout_ms=first_ms))
