"""A JVM started on demand, for Iceberg commits without Spark.

Its class path has the jars folder of the pyspark package (found without importing it) and
Iceberg's Spark runtime, which comes from ``tiering.jars``, an Ivy cache of this machine, or a
download.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from py4j.java_gateway import (
    GatewayClient,
    GatewayConnection,
    GatewayParameters,
    JavaGateway,
)
from py4j.protocol import Py4JError, get_return_value, is_error

from sluice.artifacts.iceberg import installed_iceberg
from sluice.artifacts.jars import fetch, kept_places
from sluice.artifacts.java import java, java_version, pyspark_jars
from sluice.cache_folder import cache_folder
from sluice.errors import ConfigurationError, DriverRefused
from sluice.masking import TEXT_CHARS_MAX, mask

START_TIMEOUT_S = 120.0
"""Seconds that Java may take until it prints its port."""
_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dlog4j2.level=ERROR",
    "-Dlog4j.configurationFile=",
)


def check_jvm(jars: str) -> None:
    """Checks that :class:`Jvm` can start; fetches Iceberg's runtime if it is missing.

    :raises ConfigurationError: Spark's jars, Java or Iceberg's runtime is missing; says which.
    """
    pyspark_jars()
    _version_of(java())
    iceberg_jar(jars)


@functools.cache
def _version_of(_command: str) -> int:
    """The Java version, cached because a waiting command checks every few seconds."""
    return java_version()


class Jvm:
    """A JVM with a py4j gateway; a context manager. It ends with this process."""

    def __init__(self, jars: str = "") -> None:
        """Starts the JVM.

        :param jars: folder with Iceberg's runtime jar and other jars that the catalog or its
            storage need (a JDBC driver, iceberg-aws-bundle); empty: find or fetch the runtime.
        :raises ConfigurationError: pyspark's jars folder or Iceberg's runtime is missing.
        :raises DriverRefused: Java cannot be started.
        """
        spark_jars = pyspark_jars()
        class_path = f"{iceberg_class_path(jars)}:{spark_jars}/*"
        words = tempfile.TemporaryFile()  # noqa: SIM115  (the JVM writes to it while it lives)
        try:
            port, token, self._process = _launch(
                next(spark_jars.glob("py4j-*.jar")), class_path, words
            )
        except (OSError, ValueError) as error:
            words.seek(0)
            said = mask(words.read()[-TEXT_CHARS_MAX:].decode(errors="replace"))[-1000:].strip()
            why = said or (f"{error}" if isinstance(error, OSError) else "it exited at once")
            raise DriverRefused(f"{java()} does not start: {why}") from error
        finally:
            words.close()  # the JVM has its own handle
        self.gateway: Any = _Gateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=False)
        )

    def close(self) -> None:
        """Ends the JVM and waits for it, at most 10 seconds; kills it after that."""
        with contextlib.suppress(Py4JError, OSError):
            if self._process.poll() is None:
                self.gateway.shutdown()
            else:
                self.gateway.close(
                    keep_callback_server=False, close_callback_server_connections=True
                )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kills the JVM at once."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Jvm:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Gateway(JavaGateway):
    def _create_gateway_client(self) -> GatewayClient:
        return _GatewayClient(gateway_parameters=self.gateway_parameters)


class _GatewayClient(GatewayClient):
    """Raises Java exceptions before a Spark session in this process can convert them.

    Such a session hooks into py4j and treats every exception as one of Spark's JVM. It would
    look up the class of an object of this JVM in Spark's JVM.
    """

    def _create_connection(self) -> GatewayConnection:
        connection = _GatewayConnection(self.gateway_parameters, self.gateway_property)
        connection.start()
        return connection

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        try:
            answer = super().send_command(command, retry=retry, binary=binary)
        except _CallInterrupted as stop:
            raise stop.by from None
        if not binary and is_error(answer)[0]:
            get_return_value(answer, self, "a Java", "method")
        return answer


class _CallInterrupted(BaseException):
    """Ctrl-C or SIGTERM ended a call into the JVM."""

    def __init__(self, by: KeyboardInterrupt) -> None:
        self.by = by


class _GatewayConnection(GatewayConnection):
    """Ends an interrupted call by closing the connection.

    py4j 0.10.9.9 handles the interruption itself: it prints a stack trace and calls a method that
    connections of this kind do not have (``GatewayClient.send_command``).
    """

    def send_command(self, command: str) -> Any:
        try:
            return super().send_command(command)
        except KeyboardInterrupt as stop:
            self.close(False)
            raise _CallInterrupted(stop) from None

    def shutdown_socket(self, *_ports: int) -> None:
        self.close(False)


def _launch(
    py4j: Path, class_path: str, words: IO[bytes]
) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Starts a gateway that ends when its standard input is closed; returns port and token.

    It replaces py4j's ``launch_gateway``, which runs Python code between fork and exec for the new
    process group. There gRPC restarts its threads, which sometimes end the process before Java
    starts.

    :param words: receives Java's standard error.
    :raises OSError: Java cannot be started, or hangs. :raises ValueError: it exited at once.
    """
    command = [java(), "-classpath", f"{py4j}:{class_path}", *_OPTIONS, "py4j.GatewayServer"]
    process = subprocess.Popen(
        [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        process_group=0,  # this process handles Ctrl-C; a closed pipe ends the JVM
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # If Java hangs, kill it, so that reading its output ends.
    hung = threading.Event()

    def give_up() -> None:
        hung.set()
        process.kill()

    watch = threading.Timer(START_TIMEOUT_S, give_up)
    watch.start()
    try:
        port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
    except BaseException as error:  # also an interruption: no Java may outlive this process
        process.kill()
        process.communicate()
        if hung.is_set():
            raise TimeoutError(f"it did not start within {START_TIMEOUT_S:g} seconds") from error
        raise
    finally:
        watch.cancel()
    threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
    return port, token, process


def _drain(output: IO[bytes]) -> None:
    """Reads the JVM's output, because a full pipe would block it."""
    with output:
        while output.read(65536):
            pass


def iceberg_class_path(jars: str) -> str:
    """Iceberg's runtime and all other files of ``jars``, as Java's class path.

    :raises ConfigurationError: as of :func:`iceberg_jar`.
    """
    others = [f"{Path(jars).absolute()}/*"] if jars else []
    return ":".join([str(iceberg_jar(jars).absolute()), *others])


def iceberg_jar(jars: str, submit: Path | None = None) -> Path:
    """The jar of Iceberg's runtime for the installed Spark; fetches it if it is missing.

    :param submit: the program spark-submit; None: the runtime is that of the package pyspark.
    :raises ConfigurationError: the jar cannot be found, fetched or stored, or Sluice does not
        support this Spark version.
    """
    runtime = installed_iceberg(submit)
    name = runtime.name
    if jars:
        if (Path(jars) / name).is_file():
            return Path(jars) / name
        raise ConfigurationError(
            f"tiering.jars={jars}: the folder has no {name}; run `sluice jars fetch {jars}`"
        )
    for path in kept_places(runtime):
        if path.is_file():
            return path
    return fetch(runtime, cache_folder() / "jars")
