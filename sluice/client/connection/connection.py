"""The connection to a cluster: its servers, their calls, the leaders of buckets; retries."""

from __future__ import annotations

import random as random_module
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message

from sluice import __version__
from sluice.client.connection.addresses import Address, open_transport, parse_bootstrap
from sluice.client.connection.bucket_counts import BucketCounts, still_refused
from sluice.client.connection.metadata import (
    Servers,
    combined,
    is_behind,
    leaders_in,
    server_in,
    servers_in,
)
from sluice.client.connection.retry import LEADER_RULES, RULES, RetryPolicy, Rule, call_with_retries
from sluice.config import ClientConfig
from sluice.errors import (
    FlussError,
    InvalidBucketRouting,
    LeaderNotAvailable,
    NetworkError,
    NotCoordinatorLeader,
    NotLeaderOrFollower,
    RequestTimeOut,
    TableNotExist,
    UnknownServerError,
    UnknownTableOrBucket,
    UnsupportedVersion,
    WrongProtocol,
)
from sluice.model import ServerInfo, TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.messages.table_paths import table_path
from sluice.wire.transport import Transport

T = TypeVar("T")

_ENTRIES_MAX = 16
"""Most servers that are remembered to request metadata from."""

NO_LEADER = "its leader"
NO_SERVER = "any server of the cluster"
"""What an error names in its detail ``server``, where other errors have an address."""

_NOT_YET = "CoordinatorEventProcessor is not initialized yet"
"""Text of a Fluss 0.9.1 coordinator's error (code -1) between its election and readiness."""


@dataclass(slots=True)
class _Cache:
    """What is known of the cluster; all of it may be dropped and queried again at any time."""

    servers: Servers | None = None
    leaders: dict[TableBucket, Address] = field(default_factory=dict)
    offered: dict[tuple[Address, Role], dict[int, int]] = field(default_factory=dict)
    """The highest version of each call that a server offers, by api key."""


class Connection:
    """The connection of one client, for all of its calls. Safe for use by many threads.

    Nothing is sent before the first call. ``sleep``, ``now`` and ``random`` belong to the retries.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        sleep: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:raises ConfigurationError: the bootstrap address is malformed."""
        self.config = config
        self._bootstrap = parse_bootstrap(config.bootstrap)
        self._policy = RetryPolicy(timeout_ms=config.retry_timeout_ms)
        first_ms = min(config.retry_timeout_ms, config.connect_timeout_ms)
        self._first_policy = RetryPolicy(timeout_ms=first_ms)
        self._answered = False  # set once, by any thread
        self._sleep, self._now, self._random = sleep, now, random
        self._lock = threading.Lock()  # guards the rest
        self._closed = False
        self._entries = self._bootstrap
        self._transports: dict[Address, Transport] = {}
        self._cache = _Cache()
        self._counts = BucketCounts()  # has a lock of its own

    def close(self) -> None:
        """Ends all connections; calls under way fail with NetworkError."""
        with self._lock:
            self._closed = True
            transports, self._transports = list(self._transports.values()), {}
            self._cache = _Cache()
        for transport in transports:
            transport.close()

    def call_coordinator(
        self,
        api: Api,
        request: Message,
        unpack: Callable[[Any], T],
        *,
        idempotent: bool | None = None,
        retry: bool = True,
        on_failure: Callable[[FlussError], None] | None = None,
    ) -> T:
        """Calls the coordinator; ``unpack`` reads the response or raises the error in its body.

        :param idempotent: overrides the Api's, for a request that is safer or riskier to repeat.
        :param on_failure: called with the error of an attempt before the request is sent again.
        """

        def attempt() -> T:
            address = self._find(lambda: self._servers().coordinator, Role.COORDINATOR, api)
            try:
                return unpack(self._call(address, Role.COORDINATOR, api, request))
            except NotCoordinatorLeader:
                self._ask_last(address)  # a deposed one may still claim to lead
                raise

        def on_retry(error: FlussError, rule: Rule) -> None:
            if on_failure is not None:
                on_failure(error)
            self._refresh(error, rule)

        return self._retrying(attempt, api, idempotent, on_retry, retry=retry)

    def ask_coordinator(
        self, api: Api, request: Message, *, idempotent: bool | None = None, retry: bool = True
    ) -> Any:
        """Calls the coordinator; returns its response, in whose body no error is looked for."""
        return self.call_coordinator(
            api, request, lambda reply: reply, idempotent=idempotent, retry=retry
        )

    def coordinator_offers(self, api: Api, version: int = 0) -> bool:
        """Whether the coordinator offers this call, in this version or a higher one."""

        def attempt() -> bool:
            try:
                address = self._find(lambda: self._servers().coordinator, Role.COORDINATOR, api)
            except UnsupportedVersion:
                return False
            return self._offered(address, Role.COORDINATOR)[api.key] >= version

        return self._retrying(attempt, api, True, self._refresh)

    def coordinator_versions(self) -> pb.ApiVersionsResponse:
        """The calls that the coordinator offers, and their versions, queried now."""

        def attempt() -> pb.ApiVersionsResponse:
            found: pb.ApiVersionsResponse = self._ask_versions(
                self._servers().coordinator, Role.COORDINATOR
            )
            return found

        return self._retrying(attempt, apis.API_VERSIONS, True, self._refresh)

    def describe(self) -> list[ServerInfo]:
        """Every server of the cluster, each queried now; the coordinator first.

        :raises FlussError: one of them cannot be reached.
        """
        servers = self._servers()
        places = [(servers.coordinator, Role.COORDINATOR)]
        places += [(servers.tablets[number], Role.TABLET) for number in sorted(servers.tablets)]
        return [
            server_in(self._ask_versions(address, role), address, role) for address, role in places
        ]

    def call_tablet(self, api: Api, request: Message, unpack: Callable[[Any], T]) -> T:
        """Calls any tablet server."""

        def attempt() -> T:
            address = self._find(self._any_tablet, Role.TABLET, api)
            return unpack(self._call(address, Role.TABLET, api, request))

        return self._retrying(attempt, api, None, self._refresh)

    def call_leader(
        self,
        path: TablePath,
        bucket: TableBucket,
        api: Api,
        request: Message,
        unpack: Callable[[Any], T],
        *,
        idempotent: bool | None = None,
        sleep: Callable[[float], object] | None = None,
        on_failure: Callable[[FlussError], None] | None = None,
        decode: Callable[[memoryview], Any] | None = None,
        routed_by: int | None = None,
    ) -> T:
        """Calls the leader of a bucket, and finds the new leader when it has moved.

        :param routed_by: the number of buckets among which the caller has chosen this one.
        :param sleep: in place of the connection's own, for a caller that can be interrupted.
        :param decode: reads the response's bytes in place of the call's own message.
        """

        def attempt() -> T:
            address = self._find(lambda: self.leader(path, bucket), Role.TABLET, api)
            self._route(path, api, request, routed_by)
            return unpack(self._call(address, Role.TABLET, api, request, decode))

        def on_retry(error: FlussError, rule: Rule) -> None:
            if on_failure is not None:
                on_failure(error)
            self._refresh(error, rule)
            if rule.refresh:
                self.forget_leader(bucket)
            if isinstance(error, InvalidBucketRouting):
                self._counts.forget(bucket.table_id)

        try:
            return self._retrying(
                attempt, api, idempotent, on_retry, sleep=sleep, rules=LEADER_RULES
            )
        except InvalidBucketRouting as error:
            raise still_refused(path, bucket, error) from error

    def _route(self, path: TablePath, api: Api, request: Message, routed_by: int | None) -> None:
        """Writes bucket counts into a request, as far as the cluster names them."""
        if unknown := self._counts.unknown(api, request):
            with suppress(FlussError):  # whatever it is, the call itself finds it
                self._learn([path], [number for number in unknown if number is not None])
        self._counts.put(path, api, request, routed_by)

    def connect_leader(self, path: TablePath, bucket: TableBucket) -> None:
        """Connects to the leader of a bucket, so that the next call to it is one request.

        :raises FlussError: it is not known, or cannot be reached.
        """

        def attempt() -> None:
            self._find(lambda: self.leader(path, bucket), Role.TABLET, apis.LOOKUP)

        self._retrying(attempt, apis.LOOKUP, True, self._refresh)

    def known_leader(self, bucket: TableBucket) -> Address | None:
        """The bucket's leader if it was looked up before."""
        with self._lock:
            return self._cache.leaders.get(bucket)

    def forget_leader(self, bucket: TableBucket) -> None:
        """The next call looks the bucket's leader up."""
        with self._lock:
            self._cache.leaders.pop(bucket, None)

    def leader(self, path: TablePath, bucket: TableBucket) -> Address:
        """The server that leads the bucket.

        :raises TableNotExist: if the path has another table by now.
        :raises LeaderNotAvailable: while none is elected.
        """
        found = self.known_leader(bucket)
        if found is not None:
            return found
        partitions = [] if bucket.partition_id is None else [bucket.partition_id]
        try:
            reply, leaders = self._learn([path], partitions)
        except UnknownServerError as error:
            # Fluss 0.9.1 answers with a stack trace for a table that no longer exists.
            if not self._table_exists(path):
                raise TableNotExist(f"table {path} was dropped") from error
            raise
        tables = [table.table_id for table in reply.table_metadata]
        if bucket.table_id not in tables:
            raise TableNotExist(
                f"table {path} of id {bucket.table_id} was dropped; the path now has {tables}"
            )
        if bucket not in leaders:
            raise UnknownTableOrBucket(
                f"table {path} has no bucket {bucket}; it has {len(leaders)} buckets there",
                final=not is_behind(reply, bucket),
            )
        address = leaders[bucket]
        if address is None:
            raise LeaderNotAvailable(
                f"bucket {bucket} of {path} has no leader now", server=NO_LEADER
            )
        return address

    def describe_tables(self, paths: Sequence[TablePath], partitions: Sequence[int] = ()) -> Any:
        """The metadata of several tables in one call, which also learns the leaders of buckets.

        :param partitions: ids of partitions of these tables whose leaders to learn.
        :raises FlussError: for all of them, if one of them no longer exists.
        """
        return self._retrying(
            lambda: self._learn(paths, partitions)[0], apis.GET_METADATA, True, self._refresh
        )

    def _learn(
        self, paths: Sequence[TablePath], partitions: Sequence[int]
    ) -> tuple[Any, dict[TableBucket, Address | None]]:
        """The metadata of tables and partitions, and the leaders in it."""
        request = pb.MetadataRequest(
            table_path=[table_path(path) for path in paths], partitions_id=partitions
        )
        reply, servers = self._metadata(request)
        leaders = leaders_in(reply, servers)
        self._counts.learn(reply)
        with self._lock:
            self._cache.leaders.update({b: a for b, a in leaders.items() if a is not None})
        return reply, leaders

    def _table_exists(self, path: TablePath) -> bool:
        request = pb.TableExistsRequest(table_path=table_path(path))
        coordinator = self._servers().coordinator
        reply = self._call(coordinator, Role.COORDINATOR, apis.TABLE_EXISTS, request)
        return bool(reply.exists)

    def _refresh(self, error: FlussError, rule: Rule) -> None:
        """Drops known addresses and calls if they may be the cause of the error."""
        del error
        if rule.refresh:
            self._forget_servers()

    def _forget_servers(self) -> None:
        with self._lock:
            self._cache.servers = None
            self._cache.offered.clear()

    def _retrying(
        self,
        attempt: Callable[[], T],
        api: Api,
        idempotent: bool | None,
        on_retry: Callable[[FlussError, Rule], None],
        *,
        retry: bool = True,
        sleep: Callable[[float], object] | None = None,
        rules: Mapping[type[FlussError], Rule] = RULES,
    ) -> T:
        policy = self._policy if self._answered else self._first_policy
        return call_with_retries(
            attempt,
            policy if retry else RetryPolicy(timeout_ms=0),
            idempotent=api.idempotent if idempotent is None else idempotent,
            rules=rules,
            on_retry=on_retry,
            sleep=sleep or self._sleep,
            now=self._now,
            random=self._random,
        )

    def _find(self, address_of: Callable[[], Address], role: Role, api: Api) -> Address:
        """The address to call. Whatever fails here, the request itself was not sent."""
        try:
            address = address_of()
            offered = self._offered(address, role)
        except FlussError as error:
            error.details.setdefault("sent", False)
            raise
        if api.key not in offered:
            with self._lock:  # asked again next time: another server may be there by then
                self._cache.offered.pop((address, role), None)
            raise UnsupportedVersion(
                f"server {address} does not offer {api.name} (api key {api.key}) as"
                f" {role.name.lower()}; it may be another version, or not Sluice's server",
                sent=False,
            )
        return address

    def _offered(self, address: Address, role: Role) -> dict[int, int]:
        with self._lock:
            found = self._cache.offered.get((address, role))
        if found is not None:
            return found
        reply = self._ask_versions(address, role)
        found = {
            api.api_key: api.max_version
            for api in reply.api_versions
            if api.api_key in apis.BY_KEY
            and api.min_version <= apis.BY_KEY[api.api_key].max_version
        }
        with self._lock:
            self._cache.offered[address, role] = found
        return found

    def _ask_versions(self, address: Address, role: Role) -> Any:
        request = pb.ApiVersionsRequest(
            client_software_name="sluice", client_software_version=__version__
        )
        return self._call(address, role, apis.API_VERSIONS, request)

    def _servers(self) -> Servers:
        with self._lock:
            found = self._cache.servers
        return found or self._metadata(pb.MetadataRequest())[1]

    def _any_tablet(self) -> Address:
        tablets = self._servers().tablets
        if not tablets:
            self._forget_servers()
            raise LeaderNotAvailable(f"cluster {self.config.bootstrap} has no tablet server now")
        return tablets[min(tablets)]

    def _metadata(self, request: pb.MetadataRequest) -> tuple[Any, Servers]:
        """The response of the first server that responds: bootstrap servers, then known others."""
        started = self._now()
        failures: list[FlussError] = []
        with self._lock:
            entries = self._entries
        for entry in entries:
            late = (self._now() - started) * 1000 > self.config.request_timeout_ms
            if late and failures:
                break
            try:
                reply = self._metadata_of(entry, request)
            except (NetworkError, RequestTimeOut, NotCoordinatorLeader) as error:
                if error.details.get("final"):
                    raise
                failures.append(error)
                self._ask_last(entry)
                continue
            servers = servers_in(reply, entry, self._bootstrap[0])
            with self._lock:
                self._cache.servers = servers
                others = [*self._bootstrap, servers.coordinator, *servers.tablets.values()]
                self._entries = tuple(dict.fromkeys([entry, *others]))[:_ENTRIES_MAX]
            return reply, servers
        failed = combined(failures)
        failed.details["server"] = NO_SERVER
        raise failed

    def _metadata_of(self, entry: Address, request: pb.MetadataRequest) -> Any:
        try:
            return self._call(entry, Role.COORDINATOR, apis.GET_METADATA, request)
        except (UnsupportedVersion, NotCoordinatorLeader) as error:
            try:  # a tablet server knows the cluster, too
                return self._call(entry, Role.TABLET, apis.GET_METADATA, request)
            except UnsupportedVersion:
                if entry.scheme == "grpc" and isinstance(error, UnsupportedVersion):
                    raise WrongProtocol(
                        f"{entry.target} is a gRPC or HTTP/2 server, but not Sluice's: it offers no"
                        " call of Fluss",
                        sent=False,
                    ) from None
                raise error from None
            except NotLeaderOrFollower:
                raise error from None

    def _ask_last(self, entry: Address) -> None:
        with self._lock:
            if entry not in self._entries:
                return
            self._entries = (*(other for other in self._entries if other != entry), entry)

    def _call(
        self,
        address: Address,
        role: Role,
        api: Api,
        request: Message,
        decode: Callable[[memoryview], Any] | None = None,
    ) -> Any:
        with self._lock:
            if self._closed:
                raise NetworkError(f"{api.name}: the client was closed", sent=False, final=True)
            transport = self._transports.get(address)
            if transport is None:
                transport = self._transports[address] = open_transport(address, self.config)
        timeout_ms = self.config.request_timeout_ms
        try:
            if decode is None:
                answer = transport.call(role, api, request, timeout_ms)
            else:
                answer = decode(transport.exchange(role, api, request, timeout_ms))
        except UnknownServerError as error:
            if _NOT_YET in str(error):  # Fluss 0.9.1 has no code for it: nothing was done
                raise NotCoordinatorLeader(f"{api.name}: {address} is still starting") from error
            raise
        except FlussError as error:
            error.details["server"] = str(address)
            raise
        self._answered = True
        return answer
