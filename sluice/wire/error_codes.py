"""Converts Fluss's error codes to exceptions and back, for bodies, error frames and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sluice.errors import FlussError, code_of, from_code
from sluice.masking import cut
from sluice.wire import fluss_api_pb2 as pb

ERROR_KEY = "fluss-error-bin"
"""Trailing metadata of a gRPC status that holds a serialized ErrorResponse."""

MESSAGE_CHARS_MAX = 2048
"""Longest error text on the wire; no stack trace is ever sent."""


def to_error_response(error: BaseException) -> pb.ErrorResponse:
    """An exception as Fluss's ErrorResponse; other exceptions only with class and text."""
    text = str(error) if isinstance(error, FlussError) else f"{type(error).__name__}: {error}"
    return pb.ErrorResponse(error_code=code_of(error), error_message=cut(text, MESSAGE_CHARS_MAX))


def put_error(target: Any, error: BaseException) -> None:
    """Writes an exception into a body that has ``error_code`` and ``error_message``."""
    response = to_error_response(error)
    target.error_code = response.error_code
    target.error_message = response.error_message


@contextmanager
def errors_into(target: Any) -> Iterator[None]:
    """Writes a FlussError of the block into a body, and continues after the block."""
    try:
        yield
    except FlussError as error:
        put_error(target, error)


def raise_in_body(body: Any) -> None:
    """:raises FlussError: if the body (of a bucket, table or reply) carries an error code."""
    if body.HasField("error_code") and body.error_code != 0:
        raise from_code(body.error_code, body.error_message)
