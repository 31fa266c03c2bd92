"""What becomes of each option of a store: it is passed to pyarrow, refused, or ignored.

Each store has one table from the option's name to its rule. A name that ends with a dot stands for
all names that begin with it; HOST at the end stands for the place that an option is about. Hadoop's
names are meant with and without ``hadoop.`` before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.errors import ConfigurationError

HADOOP_PREFIX = "hadoop."
_HOST = ".HOST"


def is_on(value: str) -> bool:
    """Whether a switch is on, as Iceberg and Hadoop read it."""
    return value.strip().lower() == "true"


def is_set(value: str) -> bool:
    """Whether an option asks for anything: a text other than ``false`` and ``none``."""
    return value.strip().lower() not in ("", "false", "none")


@dataclass(frozen=True, slots=True)
class Passed:
    """The option sets an argument of pyarrow's file system; the first one of a table counts."""

    argument: str
    value: Callable[[str], object] = str
    """Makes the argument; None for pyarrow's default. A ValueError refuses the text."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Files would be stored, read or deleted otherwise than the option asks."""

    why: str
    """Why, and what to do instead; follows the option's name."""
    when: Callable[[str], bool] = is_set
    """Which values are refused."""
    unless: tuple[str, ...] = ()
    """Not refused where one of these arguments is passed."""
    is_secret: bool = False
    """The value is not shown."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The option has no effect on pyarrow's file system, and needs none."""

    why: str


Rule = Passed | Refused | Ignored
Table = Mapping[str, Rule]


@dataclass(frozen=True, slots=True)
class Given:
    """An option as the user wrote it."""

    name: str
    value: str


Options = Mapping[str, Given]
"""By name, without ``hadoop.``."""


def given(options: Mapping[str, str]) -> dict[str, Given]:
    """The options that have a value; a name without ``hadoop.`` counts before one with it."""
    set_ones = {name: Given(name, value) for name, value in options.items() if value}
    found = {name: g for name, g in set_ones.items() if not name.startswith(HADOOP_PREFIX)}
    for name, option in set_ones.items():
        found.setdefault(name.removeprefix(HADOOP_PREFIX), option)
    return found


def arguments(table: Table, options: Options, places: Sequence[str] = ()) -> dict[str, object]:
    """The arguments that a table's options set.

    :param places: what HOST may be; the first that is set counts.
    :raises ConfigurationError: a value is not valid.
    """
    found: dict[str, object] = {}
    for name, rule in table.items():
        if not isinstance(rule, Passed) or rule.argument in found:
            continue
        option = next(_of(name, options, places), None)
        if option is not None:
            try:
                found[rule.argument] = rule.value(option.value)
            except ValueError as error:
                raise ConfigurationError(f"{option.name}: {error}") from error
    return {argument: value for argument, value in found.items() if value is not None}


def refuse(
    table: Table, options: Options, passed: Mapping[str, object], places: Sequence[str] = ()
) -> None:
    """Refuses the first option that pyarrow cannot honour.

    :param passed: the arguments that are passed.
    :param places: what HOST may be.
    :raises ConfigurationError: names the option, its value, and what to do. Its detail ``option``
        is the name.
    """
    for name, rule in table.items():
        if not isinstance(rule, Refused) or any(each in passed for each in rule.unless):
            continue
        for option in _of(name, options, places):
            if rule.when(option.value):
                shown = "" if rule.is_secret else f"={option.value}"
                raise ConfigurationError(f"{option.name}{shown}: {rule.why}", option=option.name)


def has_name(table: Table, name: str) -> bool:
    """Whether a table has a rule for an option."""
    return name in table or any(
        name.startswith(start) and name != start
        for start in (each.removesuffix("HOST") for each in table)
        if start.endswith(".")
    )


def _of(name: str, options: Options, places: Sequence[str]) -> Iterator[Given]:
    """The options that a name of a table stands for."""
    if name.endswith(_HOST):
        names = [name.removesuffix("HOST") + place for place in places]
        yield from (options[each] for each in names if each in options)
    elif name.endswith("."):
        yield from (o for each, o in options.items() if each.startswith(name) and each != name)
    elif name in options:
        yield options[name]
