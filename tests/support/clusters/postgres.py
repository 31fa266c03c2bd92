"""A PostgreSQL server of the test's own: a database of Airflow, or a catalog's."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.support.programs.processes import wait_for

INSTALL = "apt-get install postgresql"
START_S = 120
STOP_S = 60
SERVER_USER = "postgres"
"""The account of the package. PostgreSQL refuses to run as root."""
DEFAULT_PORT = 5432
"""Also the end of the socket's name."""
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
}


@contextmanager
def running_postgres() -> Iterator[str]:
    """Starts a server that listens on a socket in a folder of its own, and ends it.

    :returns: the URL of an empty database, as SQLAlchemy takes it.
    """
    with postgres_folder() as folder:
        yield f"postgresql+psycopg2://{SERVER_USER}@/postgres?host={folder}"


@contextmanager
def postgres_folder(port: int | None = None) -> Iterator[Path]:
    """Starts a server, and ends it; whoever reaches the socket in its folder may do all.

    :param port: listens on that port of 127.0.0.1, too, where users need their passwords.
    """
    folder = Path(tempfile.mkdtemp(prefix="sluice-postgres-"))  # pytest's own are root's alone
    as_user = _as_user(folder)
    server: subprocess.Popen[bytes] | None = None
    try:
        data = folder / "data"
        _initialize(data, as_user)
        places = {"listen_addresses": "127.0.0.1", "port": str(port)} if port else {}
        given = {**OPTIONS, **places}
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("ab") as log:
            server = subprocess.Popen(
                [_program("postgres"), "-D", str(data), "-k", str(folder), *options],
                stdout=log,
                stderr=log,
                cwd=folder,
                **as_user,
            )
        wait_for("PostgreSQL to answer", lambda: _answers(folder, port, server), START_S)
        yield folder
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once, without a checkpoint
            try:
                server.wait(STOP_S)
            finally:
                server.kill()
        shutil.rmtree(folder)


def _program(name: str) -> str:
    """The path of one of PostgreSQL's programs: Debian puts those of a server outside the PATH."""
    if found := shutil.which(name):
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not installed:
        pytest.fail(f"PostgreSQL's program {name} is missing: run `{INSTALL}`, then repeat this")
    return str(installed[-1])


def _as_user(folder: Path) -> dict[str, Any]:
    """Arguments of Popen for a user that may run a server, who gets the folder."""
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam(SERVER_USER)
    except KeyError:
        pytest.fail(f"the user {SERVER_USER} is missing: run `{INSTALL}`, then repeat this")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _initialize(data: Path, as_user: dict[str, Any]) -> None:
    command = [_program("initdb"), "-D", str(data), "-U", SERVER_USER, "-N"]
    command += ["--auth-local=trust", "--auth-host=scram-sha-256"]
    done = subprocess.run(
        [*command, "-E", "UTF8", "--locale=C"],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        cwd=data.parent,
        **as_user,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_sql(folder: Path, port: int | None, *statements: str) -> None:
    """Runs statements over the socket, each in a transaction of its own.

    :raises psycopg2.Error: the server does not answer, or refuses one.
    """
    connection = psycopg2.connect(
        host=str(folder), port=port or DEFAULT_PORT, user=SERVER_USER, dbname="postgres"
    )
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def _answers(folder: Path, port: int | None, server: subprocess.Popen[bytes] | None) -> bool:
    assert server is not None
    assert server.poll() is None, (folder / "log").read_text()
    try:
        run_sql(folder, port)
    except psycopg2.OperationalError:
        return False
    return True
