"""Helpers for calls into the driver's JVM: error conversion, callbacks, Java collections.

They work with any py4j gateway: Spark's, or that of a JVM started on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import CallbackServerParameters
from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import LakeNotWritable


def deepest(throwable: Any) -> tuple[str, str]:
    """Class name and message of the deepest cause of a Java exception."""
    for _ in range(50):  # a chain of causes is finite; this one is bounded too
        cause = throwable.getCause()
        if cause is None or cause.equals(throwable):
            break
        throwable = cause
    return throwable.getClass().getName(), throwable.getMessage() or ""


def class_name(error: Py4JJavaError) -> str:
    """Simple class name of the Java exception itself."""
    return str(error.java_exception.getClass().getSimpleName())


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Turns errors of the JVM into LakeNotWritable; ``doing`` says what failed (`load table x`)."""
    try:
        yield
    except Py4JJavaError as error:
        name, message = deepest(error.java_exception)
        raise LakeNotWritable(f"{doing}: {name.rpartition('.')[2]}: {message}") from error
    except (Py4JError, OSError) as error:
        raise LakeNotWritable(f"{doing}: the JVM does not answer ({error})") from error


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
