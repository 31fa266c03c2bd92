"""The command line around the commands: help, versions, errors, exit codes."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sluice import __version__
from sluice.cli.main import cli
from sluice.cli.setup.jars import jars
from sluice.cli.terminal.options import Settings
from sluice.cli.tiering.leases import leases
from sluice.config import Config, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from sluice.stop_signals import Terminated

NOBODY = "grpc://127.0.0.1:1"


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment)


def test_the_version_is_the_packages() -> None:
    assert run("--version").output == f"sluice {__version__}\n"


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"sluice {command}" in result.output.split("Examples:")[1]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from sluice.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "heavy = {'grpc', 'pyarrow', 'numpy', 'rich', 'structlog', 'py4j'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tables", "--bootstrap", "127.0.0.1:9123"), "write grpc://127.0.0.1:9123"),
        (("tier", "orders", "--warehouse", "x"), "write DATABASE.TABLE"),
        (("tier", "shop.orders"), "give --warehouse PATH"),
        (("serve",), "give --data-dir DIR"),
        (("create-table", "shop.orders"), "either --schema TEXT or --like FILE"),
        (("tables", "--config", "/no/such/file"), "does not exist"),
        (("no-such-command",), "no such command"),
        (
            ("create-table", "shop.orders", "--schema", "id LONG"),
            "column id: unknown type LONG; use BIGINT",
        ),
        (
            ("create-table", "shop.orders", "--schema", "id"),
            "the type is missing; write for example",
        ),
        (
            ("create-table", "shop.orders", "--schema", "id INT", "--freshness", "soon"),
            "'soon' is not a duration",
        ),
        (("tier", "shop.orders", "--warehouse", "x", "--wait", "long"), "'long' is not a duration"),
    ],
)
def test_wrong_arguments_end_with_code_2_and_say_what_to_write(
    arguments: tuple[str, ...], told: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.output
    assert "Traceback" not in result.output


def test_a_table_that_is_not_there_names_the_command_that_lists_them(tmp_path: Path) -> None:
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        done = run("lookup", "shop.ordres", "--bootstrap", cluster.address)
    assert done.exit_code == 1
    assert done.stderr.endswith(" does not exist; `sluice tables` lists all tables\n")


def test_a_wrong_setting_is_named_with_its_value(tmp_path: Path) -> None:
    (tmp_path / "sluice.toml").write_text("[client]\nrequest_timeout_ms = 'soon'\n")
    result = run("tables", "--config", str(tmp_path / "sluice.toml"))
    assert result.exit_code == 2
    assert re.search(
        r"^sluice: .*sluice.toml:2: client.request_timeout_ms: .*'soon'\n$", result.output
    )


def test_a_server_that_is_down_is_one_line_with_its_address() -> None:
    result = run("tables", "--bootstrap", NOBODY, SLUICE_CLIENT_RETRY_TIMEOUT_MS="100")
    assert result.exit_code == 1
    assert result.stderr.startswith("sluice: ")
    assert "127.0.0.1:1" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_debug_shows_where_an_error_came_from() -> None:
    result = run("--debug", "tables", "--bootstrap", "nowhere")
    assert result.exception is not None
    assert type(result.exception).__name__ == "ConfigurationError"


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    for name, command in sorted(group.commands.items()):
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


@pytest.mark.parametrize("command", [(), *commands(cli)], ids=" ".join)
def test_help_fits_80_columns(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*command, "--help").output.splitlines()
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("group", [cli, jars, leases], ids=lambda group: str(group.name))
def test_the_list_of_commands_has_one_short_line_for_each(group: click.Group) -> None:
    lines = {name: c.get_short_help_str(limit=1000) for name, c in group.commands.items()}
    assert {name: line for name, line in lines.items() if len(line) >= 60} == {}


@pytest.mark.parametrize("at_question", [False, True])
@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "sluice: stopped by Ctrl-C"),
        (Terminated(), 143, "sluice: stopped by SIGTERM"),
    ],
)
def test_a_stopped_command_says_by_what(
    stop: BaseException, code: int, said: str, at_question: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was doing: click turns a stop at a question into an error without a cause."""

    def load(self: object, **_: object) -> Config:
        if at_question:
            monkeypatch.setattr("click.termui.visible_prompt_func", answer)
            click.confirm("Go on?")
        raise stop

    def answer(_: object) -> str:
        raise stop

    monkeypatch.setattr(Settings, "config", load)
    done = CliRunner().invoke(cli, ["doctor"])
    assert (done.exit_code, done.stderr.strip()) == (code, said)


def test_no_answer_to_a_question_is_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "config", lambda _: click.confirm("Go on?"))
    done = CliRunner().invoke(cli, ["doctor"], input="")
    assert (done.exit_code, done.stderr.strip()) == (1, "Aborted!")
