"""A bare gRPC server made from the table of calls, to answer in any way a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from sluice.errors import FlussError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import SERVICE, Api, Role
from sluice.wire.error_codes import ERROR_KEY, to_error_response

Handler = Callable[[Any], Any]


class WireServer:
    """Serves the given handlers on a free port; a FlussError of theirs ends the call by status.

    ApiVersions and GetMetadata (one node: this one) are answered unless handlers are given.
    """

    def __init__(
        self,
        handlers: Mapping[tuple[Role, Api], Handler],
        *,
        port: int = 0,
        max_message_bytes: int = 4 << 20,
    ) -> None:
        self.calls: list[tuple[Role, str, Any]] = []
        self._handlers = dict(handlers)
        for role in Role:
            self._handlers.setdefault((role, apis.API_VERSIONS), self._versions(role))
            self._handlers.setdefault((role, apis.GET_METADATA), self._metadata)
        self._pool = ThreadPoolExecutor(8)
        options = [
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.server(self._pool, options=options)
        for role in Role:
            methods = {
                api.name: grpc.unary_unary_rpc_method_handler(
                    self._answer(role, api, handler),
                    request_deserializer=api.request.FromString,
                    response_serializer=_bytes,
                )
                for (r, api), handler in self._handlers.items()
                if r is role
            }
            self._server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(SERVICE[role], methods)]
            )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"grpc://127.0.0.1:{self.port}"

    def __enter__(self) -> WireServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def count(self, api: Api) -> int:
        """How often a call arrived."""
        return sum(name == api.name for _, name, _ in self.calls)

    def _answer(self, role: Role, api: Api, handler: Handler) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            self.calls.append((role, api.name, request))
            try:
                return handler(request)
            except FlussError as error:
                body = to_error_response(error).SerializeToString()
                context.set_trailing_metadata([(ERROR_KEY, body)])
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

        return answer

    def _versions(self, role: Role) -> Handler:
        def answer(_: Any) -> Any:
            reply = pb.ApiVersionsResponse(server_type=role.value)
            for r, api in self._handlers:
                if r is role:
                    reply.api_versions.add(api_key=api.key, min_version=0, max_version=0)
            return reply

        return answer

    def _metadata(self, request: Any) -> Any:
        node = pb.PbServerNode(node_id=0, host="127.0.0.1", port=self.port)
        reply = pb.MetadataResponse(coordinator_server=node, tablet_servers=[node])
        for path in request.table_path:
            table = reply.table_metadata.add(
                table_path=path,
                table_id=1,
                schema_id=1,
                table_json=b"{}",
                created_time=0,
                modified_time=0,
            )
            table.bucket_metadata.add(bucket_id=0, leader_id=0)
            table.bucket_metadata.add(bucket_id=1, leader_id=0)
        return reply


def _bytes(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
