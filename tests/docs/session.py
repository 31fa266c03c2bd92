"""A bash session for the commands of one page, with a port of its own and an end.

All commands run in one shell: its folder, variables and background jobs carry over from one to the
next. Everything that a session has started is killed when it closes.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.iceberg import NEWEST, installed_iceberg
from tests.docs.blocks import ROOT, Command
from tests.support.programs.living import living
from tests.support.programs.processes import environment

COMMAND_TIMEOUT_S = 240.0
READY_TIMEOUT_S = 60.0
HOME_SHOWN = "/home/you"
"""Stands in pages for the folder where the commands run."""

_MARK = "SLUICE_DOCS_SESSION"
_LOOP = """
set -o pipefail
while IFS= read -r step; do source "$step" </dev/null >"$step.out" 2>&1; echo "$?"; done
"""
_HOST = r"((?:127\.0\.0\.1|localhost|0\.0\.0\.0):|\btablet=)"
_PORTS_OF_A_BLOCK = 10


class CommandFailed(Exception):
    """A command hung, or ended the shell."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    output: str
    step: Path


class Ports:
    """Free ports in place of those that pages name, so that pages run beside each other.

    Ports that differ in their last digit only keep their distance: the tablet of ``fluss://`` takes
    the one behind its coordinator's.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[socket.socket]] = {}
        self._shown: dict[int, int] = {}

    def real(self, shown: int) -> int:
        """The port that stands for the page's."""
        block, place = divmod(shown, _PORTS_OF_A_BLOCK)
        if block not in self._held:
            self._held[block] = _hold_neighbours()
        port: int = self._held[block][place].getsockname()[1]
        self._shown[port] = shown
        return port

    def into(self, text: str) -> str:
        """A page's text with the ports of this session."""
        return re.sub(rf"{_HOST}(\d{{4,5}})\b", lambda m: f"{m[1]}{self.real(int(m[2]))}", text)

    def out_of(self, text: str) -> str:
        """An output with the ports of the page."""
        for real, shown in self._shown.items():
            text = aligned(text, rf"(?<=[:=]){real}\b|(?<=\bport ){real}\b", str(shown))
        return text

    def close(self) -> None:
        for keeper in (keeper for keepers in self._held.values() for keeper in keepers):
            keeper.close()


def aligned(text: str, pattern: str, shown: str) -> str:
    """The text with ``shown`` in place of matches; the columns behind keep their places."""
    return "".join(_aligned(line, pattern, shown) for line in text.splitlines(keepends=True))


def _aligned(line: str, pattern: str, shown: str) -> str:
    at = 0
    while found := re.compile(pattern).search(line, at):
        before, after = line[: found.start()], line[found.end() :]
        if gap := re.search(" {2,}", after):
            width = len(gap[0]) + len(found[0]) - len(shown)
            after = after[: gap.start()] + " " * max(2, width) + after[gap.end() :]
        at = len(before) + len(shown)
        line = before + shown + after
    return line


def _hold_neighbours() -> list[socket.socket]:
    for _ in range(200):
        first = random.randrange(20_000, 60_000, _PORTS_OF_A_BLOCK)
        keepers: list[socket.socket] = []
        try:
            for port in range(first, first + _PORTS_OF_A_BLOCK):
                keepers.append(socket.socket())
                keepers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                keepers[-1].bind(("127.0.0.1", port))
        except OSError:
            for keeper in keepers:
                keeper.close()
        else:
            return keepers
    raise OSError(f"no {_PORTS_OF_A_BLOCK} neighbouring ports are free")


class Session:
    """One shell in a folder that must be empty."""

    def __init__(self, folder: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._token = uuid.uuid4().hex
        self._steps = folder / "steps"
        self.cwd = folder / "work"
        self._temporary = folder / "tmp"
        for made in (self._steps, self.cwd, self._temporary):
            made.mkdir(parents=True)
        self.ports = Ports()
        self._count = 0
        self._python_in = self._python_out = -1
        self._env = self._environment()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", _LOOP],
            cwd=self.cwd,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in environment().items()
            if name == "SLUICE_TIERING_JARS"
            or not name.startswith(("SLUICE_", "MAKE", "PYTEST", "COV_", "FORCE_", "PIP_REQUIRE"))
        }
        address = f"grpc://127.0.0.1:{self.ports.real(9123)}"
        programs = str(Path(sys.executable).parent)
        return kept | {
            "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "SLUICE_SERVER_LISTEN": address,
            "SLUICE_CLIENT_BOOTSTRAP": address,
            "DOCS_ROOT": str(ROOT),
            "DOCS_VENV": sys.prefix,
            "TMPDIR": str(self._temporary),
            "XDG_STATE_HOME": str(self._temporary / "state"),
            "COLUMNS": "80",
            "LINES": "24",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            _MARK: self._token,
        }

    def run(self, command: Command) -> Ran:
        """Runs a command to its end; one in the background until its server listens.

        :raises CommandFailed: it takes too long, or ends the shell.
        """
        step = self._step(command.text, ".sh")
        self._send(str(step))
        code = self._code(step, self._timeout_s)
        if command.is_background and "sluice serve" in command.text:
            self._wait_for_server(command, step)
        return Ran(code, self.output(step), step)

    def output_until(self, of: Ran, accepted: Callable[[str], bool]) -> str:
        """The output of a background command, once it is ``accepted``, or after a while."""
        deadline = time.monotonic() + min(READY_TIMEOUT_S, self._timeout_s)
        while not accepted(self.output(of.step)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.output(of.step)

    def python(self, code: str, page: str, line: int) -> Ran:
        """Runs it in the page's one Python process, so that names carry over.

        :raises CommandFailed: it takes too long.
        """
        if self._python_in < 0:
            self._start_python()
        step = self._step(code, ".py")
        os.write(self._python_in, f"{step}\t{page}\t{line}\n".encode())
        answer = self._read(self._python_out, step, self._timeout_s)
        return Ran(int(answer), self.output(step), step)

    def write(self, name: str, content: str) -> None:
        """Writes a file of the page into its folder."""
        path = (self.cwd / name).resolve()
        assert path.is_relative_to(self.cwd.resolve()), f"{name} leaves the page's folder"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.ports.into(content), encoding="utf-8")

    def output(self, step: Path) -> str:
        """As a page shows it."""
        path = step.with_name(step.name + ".out")
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        text = self.ports.out_of(text)
        jars = self._env["SLUICE_TIERING_JARS"]
        for real, shown in (
            (self.cwd.resolve(), HOME_SHOWN),
            (self.cwd, HOME_SHOWN),
            (self._temporary, "/tmp"),
            (jars, f"{HOME_SHOWN}/sluice/.cache/jars"),
            (sys.prefix, f"{HOME_SHOWN}/sluice/.venv"),
            (ROOT, f"{HOME_SHOWN}/sluice"),
        ):
            text = aligned(text, re.escape(str(real)), shown)
        # Pages show the Iceberg of the newest Spark; an older one may be installed.
        return text.replace(installed_iceberg().coordinates, NEWEST.coordinates)

    def close(self) -> None:
        """Kills the shell and everything that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        for number in {self._python_in, self._python_out} - {-1}:
            os.close(number)
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        deadline = time.monotonic() + 20
        while left := living(lambda env: env.get(_MARK) == self._token):
            assert time.monotonic() < deadline, f"still there: {left}"
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)
        self.ports.close()

    def _step(self, content: str, suffix: str) -> Path:
        self._count += 1
        step = self._steps / f"{self._count}{suffix}"
        step.write_text(self.ports.into(content) + "\n", encoding="utf-8")
        return step

    def _send(self, text: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{text}\n".encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            raise CommandFailed("the shell has ended") from None

    def _code(self, step: Path, timeout_s: float) -> int:
        assert self._shell.stdout is not None
        return int(self._read(self._shell.stdout.fileno(), step, timeout_s))

    def _read(self, pipe: int, step: Path, timeout_s: float) -> str:
        ready, _, _ = select.select([pipe], [], [], timeout_s)
        if not ready:
            raise CommandFailed(f"no end after {timeout_s:g} s; so far:\n{self.output(step)}")
        answer = os.read(pipe, 64).decode()
        if not answer:
            raise CommandFailed(f"it ended the shell:\n{self.output(step)}")
        return answer

    def _wait_for_server(self, command: Command, step: Path) -> None:
        """Waits until it listens where the command or else the environment says."""
        named = re.findall(rf"{_HOST}(\d{{4,5}})", self.ports.into(command.text))
        port = int(named[0][1]) if named else self.ports.real(9123)
        deadline = time.monotonic() + min(READY_TIMEOUT_S, self._timeout_s)
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if time.monotonic() > deadline:
                raise CommandFailed(f"nothing listens:\n{self.output(step)}")
            time.sleep(0.05)

    def _start_python(self) -> None:
        pipes = [self._steps / name for name in ("python.in", "python.out")]
        for pipe in pipes:
            os.mkfifo(pipe)
        # Open for both directions: neither opening nor writing waits for the other side.
        self._python_in, self._python_out = [os.open(pipe, os.O_RDWR) for pipe in pipes]
        program = Path(__file__).with_name("python_blocks.py")
        words = shlex.join([sys.executable, str(program), str(self._steps)])
        self.run(Command(f"{words} &", 0))
