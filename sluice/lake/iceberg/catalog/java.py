"""Helpers for calls into the driver's JVM: error conversion, callbacks, Java collections.

They work with any py4j gateway: Spark's, or that of a JVM started on demand. If Java throws, py4j
raises Py4JJavaError. A Spark session changes that for Spark's gateway. Some classes, such as
IllegalArgumentException, then become exceptions of pyspark. :func:`java_errors` treats both alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import CallbackServerParameters
from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import LakeNotWritable

_TRACE = re.compile(r"\n\s+at \S")
_LACKS = ("NoClassDefFoundError", "ClassNotFoundException", "No suitable driver found")
_JARS = {
    "software.amazon.awssdk.": "iceberg-aws-bundle of Iceberg's version",
    "com.google.cloud.": "iceberg-gcp-bundle",
    "com.azure.": "iceberg-azure-bundle",
    "jdbc:sqlite:": "org.xerial:sqlite-jdbc",
    "jdbc:postgresql:": "org.postgresql:postgresql",
    "jdbc:": "the JDBC driver of this database",
}
"""The jars with classes that Java did not find; the first whose sign is in its message counts."""
_CAUSES_MAX = 50
"""A chain of causes is finite; this one is bounded too."""


class JavaThrew(Exception):
    """Java threw an exception. The text is `CLASS: MESSAGE` of its deepest cause."""

    def __init__(self, kind: str, text: str, java_exception: Any = None) -> None:
        super().__init__(text)
        self.kind = kind
        """Simple class name of the exception itself."""
        self.java_exception = java_exception
        """py4j's object of the exception; None if pyspark kept only its text."""


class JvmLost(Exception):
    """The JVM does not answer. What it was asked to do may have been done."""


@contextmanager
def java_errors() -> Iterator[None]:
    """Raises the same errors for calls through any gateway.

    :raises JavaThrew: Java threw an exception.
    :raises JvmLost: the JVM did not answer, or died before it told what it threw.
    """
    try:
        try:
            yield
        except Exception as error:
            if (thrown := _thrown(error)) is not None:
                raise thrown from error
            raise
    except (Py4JError, OSError) as error:
        raise JvmLost(f"the JVM does not answer ({error})") from error


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Turns errors of the JVM into LakeNotWritable; ``doing`` says what failed (`load table x`)."""
    try:
        with java_errors():
            yield
    except (JavaThrew, JvmLost) as error:
        raise LakeNotWritable(f"{doing}: {error}{_advice(str(error))}") from error


def _advice(said: str) -> str:
    """What to do about a jar that the JVM lacks; empty if it lacks none that is known."""
    if not any(sign in said for sign in _LACKS):
        return ""
    jars = next((jars for sign, jars in _JARS.items() if sign in said.replace("/", ".")), "")
    where = "tiering.jars, or packages or jars of Airflow's section sluice"
    return f"; add {jars} to {where}" if jars else ""


def _thrown(error: Exception) -> JavaThrew | None:
    """What Java threw, if the error stands for that.

    :raises Py4JError, OSError: the JVM does not answer.
    """
    if isinstance(error, Py4JJavaError):
        throwable = error.java_exception
    elif _is_captured(error):
        throwable = getattr(error, "_origin", None)
    else:
        return None
    if throwable is None:  # pyspark's str() would add a stack trace, so take its description
        kind = type(error).__name__
        return JavaThrew(kind, f"{kind}: {getattr(error, '_desc', '')}")
    deepest = _deepest(throwable)
    name = str(deepest.getClass().getName()).rpartition(".")[2]
    text = f"{name}: {_without_trace(str(deepest.getMessage() or ''))}"
    return JavaThrew(str(throwable.getClass().getSimpleName()), text, throwable)


def _without_trace(message: str) -> str:
    """A message up to the stack trace that some classes put into it (Hive's MetaException)."""
    return _TRACE.split(message, maxsplit=1)[0].rstrip()


def _deepest(throwable: Any) -> Any:
    """The deepest cause of a Java exception."""
    for _ in range(_CAUSES_MAX):
        cause = throwable.getCause()
        if cause is None or cause.equals(throwable):
            break
        throwable = cause
    return throwable


def _is_captured(error: Exception) -> bool:
    """Whether pyspark made the error from a Java exception; this room does not import pyspark."""
    return any(
        base.__name__ == "CapturedException" and base.__module__.startswith("pyspark.")
        for base in type(error).__mro__
    )


def java_map(gateway: Any, values: Mapping[str, str]) -> Any:
    result = gateway.jvm.java.util.HashMap()
    for key, value in values.items():
        result.put(key, value)
    return result


def java_list(gateway: Any, values: Iterable[Any]) -> Any:
    result = gateway.jvm.java.util.ArrayList()
    for value in values:
        result.add(value)
    return result


def iterate(iterable: Any) -> Iterator[Any]:
    """Iterates over a Java Iterable."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def ensure_callbacks(gateway: Any) -> None:
    """Starts the gateway's callback server on a free port, unless it runs; informs the JVM.

    It listens on the loopback address without a token, because the JVM's client does not support
    one. It gives access only to the few objects that were passed to the JVM.
    """
    if gateway.__dict__.get("_callback_server") is not None:
        return
    parameters = CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True)
    # Spark's gateway is a ClientServer, which ignores these parameters and uses its own. With the
    # defaults, the thread of an open callback connection keeps a finished driver from exiting.
    own = gateway.__dict__.get("python_parameters")
    if own is not None:
        own.daemonize = own.daemonize_connections = True
    gateway.start_callback_server(parameters)
    port = gateway.get_callback_server().get_listening_port()
    server = gateway.java_gateway_server
    server.resetCallbackClient(server.getCallbackClient().getAddress(), port)
