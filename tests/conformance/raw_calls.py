"""Raw calls to both servers of a cluster, whose answers are compared field by field."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message

from sluice.client.connection.addresses import Address, open_transport, parse_bootstrap
from sluice.errors import FlussError
from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.log.batch import encode_log_batch
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import TableInfo
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.native.sasl import AUTHENTICATE
from sluice.wire.transport import Transport
from tests.conformance.answer_fields import fields_of, fields_of_json
from tests.conformance.scenario import SETTLE_WAIT_S, ScenarioContext

_TIMEOUT_MS = 30_000
NO_TABLE = 987_654_321
"""An id that no table and no partition has."""


class RawCalls:
    """Calls without retries; each answer's fields are compared with the recorded ones."""

    def __init__(self, context: ScenarioContext, transports: Mapping[Role, Transport]) -> None:
        self._context = context
        self._transports = transports

    def call(self, api: Api, request: Message, role: Role | None = None) -> Any:
        """The answer of a server; by default of the coordinator, if it serves the call."""
        if role is None:
            role = Role.COORDINATOR if Role.COORDINATOR in api.roles else Role.TABLET
        return self._transports[role].call(role, api, request, _TIMEOUT_MS)

    def ask(self, question: str, api: Api, request: Message, role: Role | None = None) -> Any:
        """Compares the fields of an answer, which is returned, or the class of the error."""
        answer: Any = None
        found: tuple[str, ...]
        try:
            answer = self.call(api, request, role)
            found = fields_of(answer)
        except FlussError as error:
            found = (f"error: {type(error).__name__}",)
        self._context.compare_fields(f"{api.name}, {question}", found)
        return answer

    def compare(self, question: str, api: Api, answer: Message) -> None:
        """Compares the fields of an answer that is there already."""
        self._context.compare_fields(f"{api.name}, {question}", fields_of(answer))

    def ask_both(self, question: str, api: Api, request: Message) -> None:
        """Asks the coordinator and the tablet server."""
        for role in Role:
            self.ask(f"{question}, of the {role.name.lower()}", api, request, role)

    def offered(self, role: Role) -> None:
        """Compares the calls that a server offers, and their versions.

        Logins are left out: over gRPC, the embedded server takes a token with each call instead.
        """
        request = pb.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = self.call(apis.API_VERSIONS, request, role)
        found = [
            f"{offered.api_key}: {offered.min_version} to {offered.max_version}"
            for offered in answer.api_versions
            if offered.api_key != AUTHENTICATE.key
        ]
        self._context.compare_fields(f"calls of the {role.name.lower()}", found)

    def json_file(self, question: str, content: bytes) -> None:
        """Compares the fields of a JSON file that an answer names."""
        self._context.compare_fields(question, fields_of_json(content))

    def wait(
        self,
        api: Api,
        request: Message,
        is_settled: Callable[[Any], bool],
        role: Role | None = None,
    ) -> Any:
        """Repeats a call until its answer is as wanted, as a cluster settles after a change.

        :raises TimeoutError: it took longer than ``SETTLE_WAIT_S``.
        """
        deadline = time.monotonic() + SETTLE_WAIT_S
        while True:
            seen: object
            try:
                seen = self.call(api, request, role)
                if is_settled(seen):
                    return seen
            except FlussError as error:
                seen = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"{api.name} after {SETTLE_WAIT_S:.0f} s: {seen}")
            time.sleep(0.05)

    def wait_for_error(self, api: Api, request: Message) -> None:
        """Repeats a call until it is refused: a tablet server learns later what was dropped."""
        deadline = time.monotonic() + SETTLE_WAIT_S
        while time.monotonic() < deadline:
            try:
                answer = self.call(api, request)
            except FlussError:
                return
            if any(bucket.HasField("error_code") for bucket in answer.buckets_resp):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{api.name} is not refused after {SETTLE_WAIT_S:.0f} s")


@contextmanager
def raw_calls(context: ScenarioContext) -> Iterator[RawCalls]:
    """Connections to the coordinator and a tablet server of the context's cluster."""
    config = context.client.config
    bootstrap = parse_bootstrap(config.bootstrap)[0]
    with ExitStack() as stack:

        def opened(address: Address) -> Transport:
            transport = open_transport(address, config)
            stack.callback(transport.close)
            return transport

        first = opened(bootstrap)
        request = pb.MetadataRequest()
        servers: Any = first.call(Role.COORDINATOR, apis.GET_METADATA, request, _TIMEOUT_MS)
        (tablet,) = servers.tablet_servers
        there = opened(bootstrap.at(tablet.host, tablet.port))
        yield RawCalls(context, {Role.COORDINATOR: first, Role.TABLET: there})


# -- requests


def log_records(
    info: TableInfo, rows: Mapping[str, Sequence[Any]], *, writer_id: int = -1, sequence: int = -1
) -> bytes:
    """A log batch of rows, given as columns."""
    batch = pa.RecordBatch.from_pydict(dict(rows), schema=arrow_schema(info.schema))
    return encode_log_batch(batch, info.schema_id, writer_id=writer_id, batch_sequence=sequence)


def keys_of(info: TableInfo, rows: Mapping[str, Sequence[Any]]) -> list[bytes]:
    """The encoded primary keys of rows."""
    return [bytes(key) for key in primary_keys(_rows(info, rows), info).to_pylist()]


def kv_records(
    info: TableInfo,
    rows: Mapping[str, Sequence[Any]],
    *,
    delete: bool = False,
    writer_id: int = -1,
    sequence: int = -1,
) -> bytes:
    """A KV batch that writes rows, or deletes them by their keys."""
    batch = _rows(info, rows)
    if delete:
        encoded = pa.nulls(batch.num_rows, pa.binary())
    else:
        types = [column.data_type for column in info.schema.columns]
        encoded = encode_rows(batch, types, "COMPACTED")
    return build_kv_batch(primary_keys(batch, info), encoded, info.schema_id, writer_id, sequence)


def _rows(info: TableInfo, rows: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(rows), schema=arrow_schema(info.schema))
