"""How errors reach the terminal: one line on standard error each, with an exit code.

A wrong use, a wrong setting and a missing package are ``sluice: MESSAGE`` with exit code 2. A
command that was tried and failed is ``sluice: KIND: MESSAGE`` with exit code 1. A command to copy
may follow on a line of its own.
"""

from __future__ import annotations

import click

from sluice.cli.terminal.output import say, say_command
from sluice.did_you_mean import did_you_mean
from sluice.errors import (
    ConfigurationError,
    DatabaseNotExist,
    MissingExtra,
    SluiceError,
    TableNotExist,
)
from sluice.stop_signals import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated, explain_stop

EXIT_FAILED = 1
EXIT_WRONG_ARGUMENTS = 2
_WRONG = (ConfigurationError, MissingExtra)
"""Errors that the user fixes before the command can start; printed without their kind."""
_NO_SUCH_OBJECT = (DatabaseNotExist, TableNotExist)


class InvalidFile(click.ClickException):
    """A file of rows cannot be read, or does not fit the table."""


class RowNotFound(click.ClickException):
    """No row has the requested key."""


def show(error: Exception) -> int:
    """Prints an error and returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    text, code = _text_of(error)
    say(f"sluice: {' '.join(text.split())}", fg="red", err=True)
    if isinstance(error, SluiceError | click.ClickException):
        for command in _commands(error):
            say_command(command)
    return code


def show_stop(stop: BaseException | None) -> int:
    """Prints why a command ended early and returns the exit code.

    :param stop: what ended it; no KeyboardInterrupt: a question was not answered.
    """
    if not isinstance(stop, KeyboardInterrupt):
        say("Aborted!", err=True)
        return EXIT_FAILED
    explain_stop(stop)
    for note in getattr(stop, "__notes__", ()):
        say(f"sluice: {note}", fg="red", err=True)
    return EXIT_TERMINATED if isinstance(stop, Terminated) else EXIT_INTERRUPTED


def _text_of(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        return usage_text(error), error.exit_code
    if isinstance(error, click.ClickException):
        is_own = not type(error).__module__.startswith("click")
        kind = f"{type(error).__name__}: " if is_own else ""
        return f"{kind}{error.format_message()}", error.exit_code
    if isinstance(error, _WRONG):
        return str(error), EXIT_WRONG_ARGUMENTS
    if isinstance(error, SluiceError):
        is_missing = isinstance(error, _NO_SUCH_OBJECT) and not _commands(error)
        is_helped = not is_missing or str(error).endswith("?")  # it suggests a name
        hint = "" if is_helped else "; `sluice tables` lists all tables"
        return f"{type(error).__name__}: {error}{hint}", EXIT_FAILED
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}", EXIT_FAILED
    kind = type(error).__name__
    return f"{kind}: {error} (unexpected: `sluice --debug` shows the traceback)", EXIT_FAILED


def usage_text(error: click.UsageError) -> str:
    """A usage error in one line: option or argument, value, expected form, and where help is."""
    context, text = error.ctx, error.format_message()
    if isinstance(error, click.NoSuchOption):
        parameters = context.command.params if context else []
        known = [name for p in parameters if isinstance(p, click.Option) for name in p.opts]
        meant = did_you_mean(error.option_name, [*known, "--help"])
        text = f"no such option {error.option_name!r}{meant}"
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        text = _of_parameter(error)
    text = _lower_first(text.strip().removesuffix("."))
    if context is None or _commands(error):
        return text
    words = " ".join(["sluice", *context.command_path.split()[1:]])
    separator = " " if text.endswith("?") else "; "
    return f"{text}{separator}see `{words} --help`"


def _of_parameter(error: click.BadParameter) -> str:
    """``--buckets: '0' is not a whole number, 1 or more``."""
    parameter, message = error.param, _lower_first(error.message)
    hint = error.param_hint
    if hint is None and parameter is not None:
        is_option = isinstance(parameter, click.Option)
        hint = parameter.opts[-1] if is_option else parameter.human_readable_name
    names = hint if isinstance(hint, str) else " / ".join(hint or ())
    return f"{names}: {message}" if names else message


def _lower_first(text: str) -> str:
    """The text with a small first letter, unless the first word is in capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _commands(error: BaseException) -> list[str]:
    """Commands to copy, which an error has as its notes."""
    return list(getattr(error, "__notes__", []))
