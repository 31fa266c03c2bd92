"""The one configuration: frozen, loaded once by an entry point; file < environment < argument.

The file is TOML with one table per section::

    [client]
    request_timeout_ms = 30000

    [datalake]
    format = "iceberg"
    iceberg = { type = "hadoop", warehouse = "/data/lake" }

The environment says the same as ``SLUICE_CLIENT_REQUEST_TIMEOUT_MS`` or
``SLUICE_DATALAKE_ICEBERG_WAREHOUSE``; an argument as ``client.request_timeout_ms``. In
option names of Iceberg and Fluss a variable has ``__`` for a dot and ``_`` for a dash.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from sluice.errors import ConfigurationError
from sluice.masking import is_secret_name, secrets_of

ENVIRONMENT_PREFIX = "SLUICE_"
SETTINGS_VARIABLE = "SLUICE_SETTINGS"
"""A JSON object of ``section.key``: value, over all other variables: what is secret, above all."""

_CA_BYTES_MAX = 4 * 1024 * 1024
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


def is_pem(text: str) -> bool:
    """Whether a text is a PEM file's content rather than its path."""
    return "-----BEGIN" in text


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How the client talks to a cluster."""

    bootstrap: str = "grpc://127.0.0.1:9123"
    """Address of the cluster: grpc://HOST:PORT, or fluss://HOST:PORT for Fluss's own protocol. More
    servers of it may follow, with commas between."""
    request_timeout_ms: int = 30_000
    """Deadline of one call."""
    retry_timeout_ms: int = 120_000
    """Longest time spent on one call with its retries."""
    connect_timeout_ms: int = 120_000
    """The same until a server has answered for the first time; the commands use 5 s at most."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Largest message sent or accepted."""
    fetch_max_bytes: int = 16 * 1024 * 1024
    """Most bytes of one fetch, over all of its buckets."""
    fetch_max_bytes_per_bucket: int = 2 * 1024 * 1024
    """Most bytes of one fetch for one bucket (one batch is always returned whole)."""
    scan_max_bytes: int = 4 * 1024 * 1024
    """client.scanner.kv.fetch.max-bytes: about how large a batch of a full scan is."""
    scan_keep_alive_ms: int = 60_000
    """A full scan whose consumer takes longer than this for a batch fetches one more row, so that
    the server keeps it: less than its kv.scanner.ttl."""
    writer_batch_bytes: int = 1024 * 1024
    """About how many bytes of Arrow data the log writer puts into one batch."""
    writer_max_inflight: int = 4
    """Most unanswered requests of one log writer."""
    tiering_status_timeout_ms: int = 5_000
    """Where Fluss keeps no tiering statuses, Sluice does so in a table of the cluster: longest wait
    for that table at the claim and at the end of a round, which go on without it."""
    tiering_backoff_ms: int = 10_000
    """There too: how long a table waits after its first failure, twice as long after each further
    one; 0: not at all."""
    username: str = ""
    """client.security.sasl.username: who authenticates by SASL PLAIN, over fluss:// only."""
    password: str = field(default="", repr=False)
    """client.security.sasl.password."""
    token: str = field(default="", repr=False)
    """Bearer token, over grpc:// only, and with TLS unless the server is on this machine."""
    tls: bool = False
    """TLS over grpc://, where a public authority has signed the server's certificate."""
    tls_ca: str = field(default="", repr=False)
    """TLS over grpc://, where one of these authorities has: a PEM file, or its very text. Spark's
    executors get the text."""
    fs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """client.fs.*: how Fluss's remote storage is reached, where the cluster's own word does not do.
    Names of Fluss, Iceberg or Hadoop: s3.endpoint, s3.access-key, s3.secret-key, s3.region, ..."""

    @property
    def has_tls(self) -> bool:
        return self.tls or bool(self.tls_ca)

    def authorities(self) -> str:
        """The certificates of ``tls_ca`` as PEM; empty if it is not set.

        :raises ConfigurationError: the file cannot be read, or holds none.
        """
        if not self.tls_ca:
            return ""
        text, where = self.tls_ca, "client.tls_ca"
        if not is_pem(text):
            where = f"client.tls_ca: {text}"
            try:
                with Path(text).open("rb") as file:
                    text = file.read(_CA_BYTES_MAX).decode(errors="replace")
            except OSError as error:
                raise ConfigurationError(f"{where}: {error.strerror}") from error
        found = _CERTIFICATE.findall(text)
        if not found:
            raise ConfigurationError(f"{where}: there is no certificate in it; give one as PEM")
        return "\n".join(found) + "\n"

    def __reduce__(self) -> tuple[Any, ...]:
        """Where a pickle goes, the file of ``tls_ca`` may be missing: it takes the text along."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _client_config, ({**values, "tls_ca": self.authorities(), "fs": dict(self.fs)},)


def _client_config(values: dict[str, Any]) -> ClientConfig:
    return ClientConfig(**values)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The embedded server."""

    data_dir: str = ""
    """Where it keeps everything."""
    listen: str = "grpc://127.0.0.1:9123"
    """Addresses it binds to, with commas between: grpc://HOST:PORT, fluss://HOST:PORT. Port 0 takes
    a free one. Fluss's own protocol needs a second port for the tablet: the next one, or the one
    of fluss://HOST:PORT?tablet=PORT."""
    advertised_listeners: str = ""
    """advertised.listeners: addresses that clients are told in place of those of listen, where they
    reach the server by another host or port; port 0 stands for the real one. Form as listen."""
    insecure: bool = False
    """Allows an address other than loopback without TLS and tokens."""
    tls_certificate: str = ""
    """TLS on all grpc:// addresses: PEM file of the server's certificate, followed by those between
    it and its authority. A renewed one is used from the next connection on."""
    tls_key: str = ""
    """PEM file of its key, without a password."""
    users_file: str = ""
    """Who may call: lines of NAME ROLE SHA256 (docs/security.md). By bearer token over grpc://, by
    SASL PLAIN with name and token over fluss://. A change counts at once. Empty: everybody may."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Largest request accepted."""
    max_batch_rows: int = 1_000_000
    """Most rows of one log batch."""
    default_bucket_count: int = 1
    """default.bucket.number of Fluss."""
    segment_bytes: int = 256 * 1024 * 1024
    """log.segment.file-size: a segment is closed when it reaches this size."""
    sync_interval_ms: int = 5_000
    """How often written log data is synced to the disk (power loss; a kill loses nothing)."""
    metrics: str = ""
    """HOST:PORT where a Prometheus server reads /metrics over HTTP; port 0 takes a free one. Empty:
    nowhere."""
    tiering_timeout_ms: int = 120_000
    """A table in Tiering without a heartbeat for this long has failed: its worker is lost."""
    tiering_check_interval_ms: int = 15_000
    """How often that is looked at."""
    tiering_backoff_ms: int = 10_000
    """How long a table waits after a failure before it is handed out again; twice as long after
    each further one, up to its freshness, and five minutes at least. 0: at once, as in Fluss."""
    kv_snapshot_interval_ms: int = 600_000
    """kv.snapshot.interval: how often a bucket that has changed gets a new KV snapshot; 0 never."""
    kv_snapshot_num_retained: int = 2
    """kv.snapshot.num-retained: newest KV snapshots of a bucket that stay; leased ones stay too."""
    kv_snapshot_lease_check_interval_ms: int = 60_000
    """kv.snapshot.lease.expiration-check-interval: how often leases that have run out are looked
    for. Such a lease holds its snapshots until then."""
    kv_block_cache_bytes: int = 32 * 1024 * 1024
    """kv.rocksdb.block.cache-size: memory for reading rows, shared by all buckets."""
    kv_write_buffer_bytes: int = 64 * 1024 * 1024
    """Memory for rows that are not in files yet, shared by all buckets."""
    kv_max_open_tablets: int = 64
    """Most buckets with a primary key that are open at once; fewer if the process may open few
    files. Others are opened when they are used."""
    kv_scanner_ttl_ms: int = 600_000
    """kv.scanner.ttl: a full scan (ScanKv) that nobody calls for longer is ended."""
    kv_scanner_expiration_interval_ms: int = 30_000
    """kv.scanner.expiration-interval: how often such scans are looked for."""
    kv_scanner_max_per_bucket: int = 8
    """kv.scanner.max-per-bucket: most scans of one bucket at once."""
    kv_scanner_max_per_server: int = 200
    """kv.scanner.max-per-server: most scans at once. Each keeps its bucket open beyond
    kv_max_open_tablets."""
    kv_scanner_max_batch_bytes: int = 10 * 1024 * 1024
    """kv.scanner.max-batch-size: largest batch of a scan, whatever its client asks for; the last
    row may exceed it."""
    kv_scanner_max_replay_bytes: int = 64 * 1024 * 1024
    """Memory for the last batches of scans that have ended, kept for kv_scanner_ttl_ms in case that
    an answer was lost; 0 keeps none."""
    max_workers: int = 32
    """Threads that answer requests, on each address. gRPC takes four calls for each at once and
    refuses more; clients try again."""
    idle_timeout_ms: int = 600_000
    """netty.connection.max-idle-time: a connection of Fluss's own protocol is closed after it."""


@dataclass(frozen=True, slots=True)
class DatalakeConfig:
    """The lake, in Fluss's own words: ``datalake.format`` and ``datalake.iceberg.*``."""

    format: str = "iceberg"
    """Only iceberg for now."""
    iceberg: Mapping[str, str] = field(default_factory=dict)
    """Catalog properties as Iceberg names them: type, warehouse, uri, ..."""


@dataclass(frozen=True, slots=True)
class TieringConfig:
    """A round of tiering."""

    parallelism: int = 2
    """Threads of `sluice tier` (under Spark: Spark's own)."""
    row_group_rows: int = 512 * 1024
    """Rows gathered before a Parquet row group is written."""
    row_group_bytes: int = 64 * 1024 * 1024
    """Arrow bytes gathered before a Parquet row group is written: bounds an executor's memory."""
    max_round_ms: int = 0
    """A round that has copied for this long ends at the next batch boundary and commits what it
    has; the table is queued again at once. 0: table.datalake.freshness, and a minute at least."""
    max_round_bytes: int = 0
    """The same for a round that has read so many bytes of log batches, shared among its buckets in
    proportion to what each has to do; every bucket gives one batch at least. 0: no limit."""
    changes_memory_bytes: int = 256 * 1024 * 1024
    """Of each bucket of a table with a primary key that is copied at one time: what gathering the
    last change of every key may take in memory. Beyond, it goes to spill_dir."""
    spill_dir: str = ""
    """Local folder, on executors, for the files of KV snapshots while they are read, and for
    changes that do not fit changes_memory_bytes. Empty: the system's place for temporary files."""
    jars: str = ""
    """Folder with the Iceberg runtime jar, for a JVM started without Spark, and with whatever jars
    the catalog needs besides: a JDBC driver, iceberg-aws-bundle for s3://."""


@dataclass(frozen=True, slots=True)
class Config:
    """All sections."""

    client: ClientConfig = field(default_factory=ClientConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    datalake: DatalakeConfig = field(default_factory=DatalakeConfig)
    tiering: TieringConfig = field(default_factory=TieringConfig)

    def secrets(self) -> tuple[str, ...]:
        """The values of all settings that nobody may see, to be masked wherever they appear."""
        found: list[str] = []
        for section in fields(self):
            values = getattr(self, section.name)
            for setting in fields(values):
                value = getattr(values, setting.name)
                named = value if isinstance(value, Mapping) else {setting.name: value}
                texts = {k: v for k, v in named.items() if isinstance(v, str)}
                found += [v for k, v in texts.items() if is_secret_name(k)]
                found += [secret for v in texts.values() for secret in secrets_of(v)]
        return tuple(value for value in found if value)


def load_config(
    path: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str | int | bool] | None = None,
) -> Config:
    """Builds the configuration from a TOML file, ``SLUICE_*`` variables and ``section.key`` pairs.

    :raises ConfigurationError: for an unreadable file, an unknown key or a wrong value; names it.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    if path is not None:
        _from_file(Path(path), found)
    for name, value in (environment or {}).items():
        if name.startswith(ENVIRONMENT_PREFIX):
            _from_environment(name, value, found)
    settings = _settings((environment or {}).get(SETTINGS_VARIABLE, ""))
    for dotted, override in [*settings.items(), *(overrides or {}).items()]:
        section, _, key = dotted.partition(".")
        _put(found, section, key.split("."), override, dotted)
    return Config(**{name: _SECTIONS[name](**values) for name, values in found.items()})


_SECTIONS: dict[str, Any] = get_type_hints(Config)


_MAPPINGS = {("datalake", "iceberg"), ("client", "fs")}


def _from_file(path: Path, found: dict[str, dict[str, Any]]) -> None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"configuration file {path}: {error}") from error
    for section, values in content.items():
        if not isinstance(values, dict):
            raise ConfigurationError(f"{path}: {section!r} is not a section")
        for key, value in values.items():
            where = f"{path}: {section}.{key}"
            if isinstance(value, dict):
                for inner, text in value.items():
                    _put(found, section, [key, inner], text, f"{where}.{inner}")
            else:
                _put(found, section, [key], value, where)


def _settings(text: str) -> dict[str, Any]:
    """:raises ConfigurationError: no JSON object; the text may hold secrets and is not shown."""
    try:
        content = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigurationError(f"{SETTINGS_VARIABLE} is not JSON: {error}") from None
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ConfigurationError(f"{SETTINGS_VARIABLE} is a JSON object of settings, not {kind}")
    return content


def _from_environment(name: str, value: str, found: dict[str, dict[str, Any]]) -> None:
    section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    if section not in _SECTIONS:
        return  # other SLUICE_ variables exist (SLUICE_FAILPOINTS); they are not ours to judge
    head, _, tail = key.partition("_")
    if (section, head) in _MAPPINGS and tail:
        _put(found, section, [head, tail.replace("__", ".").replace("_", "-")], value, name)
    else:
        _put(found, section, [key], value, name)


def _put(
    found: dict[str, dict[str, Any]], section: str, key: list[str], value: Any, where: str
) -> None:
    cls = _SECTIONS.get(section)
    if cls is None:
        known = ", ".join(sorted(_SECTIONS))
        raise ConfigurationError(f"{where}: no section {section!r}; there are {known}")
    hints = {f.name: hint for f in fields(cls) for hint in [get_type_hints(cls)[f.name]]}
    if key[0] not in hints:
        raise ConfigurationError(f"{where}: no such setting; {section} has {', '.join(hints)}")
    if hints[key[0]] not in (int, bool, str):
        if len(key) < 2:
            raise ConfigurationError(f"{where}: give {section}.{key[0]}.NAME = value")
        found[section].setdefault(key[0], {})[".".join(key[1:])] = str(value)
        return
    found[section][key[0]] = _converted(value, hints[key[0]], where)


def _converted(value: Any, kind: type, where: str) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise ConfigurationError(f"{where}: {value!r} is neither true nor false")
    if kind is int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{where}: {value!r} is not a whole number") from None
        if number < 0:
            raise ConfigurationError(f"{where}: {number} is negative")
        return number
    return str(value)
