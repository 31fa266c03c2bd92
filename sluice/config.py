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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from sluice.did_you_mean import closest, did_you_mean
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
    *,
    overrides_prefix: str = "",
) -> Config:
    """Builds the configuration from a TOML file, ``SLUICE_*`` variables and ``section.key`` pairs.

    :param overrides_prefix: what users write before an override's key; error messages repeat it.
    :raises ConfigurationError: for an unreadable file, an unknown key or a wrong value; names it.
    """
    found = _Settings()
    if path is not None:
        _add_file(Path(path), found)
    for name, value in (environment or {}).items():
        if name.startswith(ENVIRONMENT_PREFIX):
            _add_variable(name, value, found)
    settings = _settings((environment or {}).get(SETTINGS_VARIABLE, ""))
    for dotted, value in settings.items():
        found.put(dotted, value, f"{SETTINGS_VARIABLE}: {dotted}")
    for dotted, override in (overrides or {}).items():
        found.put(dotted, override, f"{overrides_prefix}{dotted}", overrides_prefix)
    return Config(**{name: _SECTIONS[name](**values) for name, values in found.sections.items()})


_SECTIONS: dict[str, Any] = get_type_hints(Config)
_MAPPINGS = {("datalake", "iceberg"), ("client", "fs")}
_KEYS = {
    f"{section}.{key}": hint
    for section, cls in _SECTIONS.items()
    for key, hint in get_type_hints(cls).items()
}


def _variable(dotted: str) -> str:
    """The variable of a setting."""
    return ENVIRONMENT_PREFIX + dotted.replace(".", "_").upper()


_VARIABLES = {_variable(d): d for d in _KEYS if tuple(d.split(".")) not in _MAPPINGS}
_MISSPELT = 0.85
"""How similar to a setting's a variable's name is that can only be meant for it."""


class _Settings:
    """The values that were found so far, by section."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}

    def put(self, dotted: str, value: Any, where: str, prefix: str = "") -> None:
        """Adds a value, in place of an earlier one.

        :param dotted: ``section.key``, or ``section.key.NAME`` of a group of options.
        :param where: what an error message begins with.
        :param prefix: what a suggested key begins with.
        :raises ConfigurationError: there is no such setting, or it cannot have this value.
        """
        section, _, rest = dotted.partition(".")
        key, _, name = rest.partition(".")
        hint = _KEYS.get(f"{section}.{key}")
        if hint is None:
            raise ConfigurationError(f"{where}: {unknown_setting(dotted, prefix)}")
        if (section, key) in _MAPPINGS:
            if not name:
                raise ConfigurationError(
                    f"{where}: a group of options has no value of its own; set"
                    f" {prefix}{section}.{key}.NAME"
                )
            self.sections[section].setdefault(key, {})[name] = str(value)
        elif name:
            raise ConfigurationError(
                f"{where}: {section}.{key} is a single value, not a group of options"
            )
        else:
            self.sections[section][key] = _converted(value, hint, where, key)


def unknown_setting(dotted: str, prefix: str = "") -> str:
    """The reason why ``section.key`` is no setting, with the setting that may be meant.

    :param prefix: what a suggested key begins with.
    """
    if meant := _meant(dotted):
        return f"no such setting; did you mean {prefix + meant!r}?"
    section = dotted.partition(".")[0]
    if section not in _SECTIONS:
        return f"no section {section!r}; the sections are {', '.join(sorted(_SECTIONS))}"
    return f"no such setting; docs/configuration.md lists those of section {section!r}"


def _meant(dotted: str) -> str | None:
    """The setting that a wrong name is meant for, if one is similar."""
    section, _, key = dotted.partition(".")
    if section in _SECTIONS:
        if found := closest(key, get_type_hints(_SECTIONS[section])):
            return f"{section}.{found}"
    elif found := closest(dotted, _KEYS, cutoff=0.8):
        return found
    same = [known.partition(".")[0] for known in _KEYS if known.endswith(f".{key}")]
    elsewhere = closest(section, same, cutoff=0)
    return f"{elsewhere}.{key}" if elsewhere else None


def _add_file(path: Path, found: _Settings) -> None:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: this is not TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: the file is not UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise ConfigurationError(f"configuration file {path}: {error.strerror}") from error
    for section, values in content.items():
        if not isinstance(values, dict):
            raise ConfigurationError(
                f"{_place(path, text, '', section)}: {section!r} is outside of a section"
                f"{_section_of(section)}"
            )
        if not values and section not in _SECTIONS:
            where = f"{_place(path, text, section, '')}: [{section}]"
            raise ConfigurationError(f"{where}: {unknown_setting(section)}")
        for dotted, key, value in _flat(section, values):
            found.put(dotted, value, f"{_place(path, text, section, key)}: {dotted}")


def _flat(section: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Settings with their values, and the key that begins their line."""
    for key, value in values.items():
        if isinstance(value, dict):
            for dotted, _, inner in _flat(f"{section}.{key}", value):
                yield dotted, key, inner
        else:
            yield f"{section}.{key}", key, value


def _section_of(key: str) -> str:
    """Where a key belongs that is outside of all sections."""
    for section, names in ((name, get_type_hints(cls)) for name, cls in _SECTIONS.items()):
        if key in names:
            return f"; write it below [{section}]"
    return "; write it below [client], [server], [datalake] or [tiering]"


def _place(path: Path, text: str, section: str, key: str) -> str:
    """``FILE:LINE`` of a key, or of a section without one; the file alone where it is not found."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\]]+?)\s*\]", line):
            current = header[1]
            found = (current == section and not key) or current == f"{section}.{key}"
        else:
            name = re.match(r"\s*[\"']?([\w.-]+?)[\"']?\s*=", line)
            names = (key, f"{section}.{key}") if current in ("", section) else ()
            found = bool(key and name and current in ("", section) and name[1] in names)
        if found:
            return f"{path}:{number}"
    return str(path)


def _settings(text: str) -> dict[str, Any]:
    """:raises ConfigurationError: no JSON object; the text may hold secrets and is not shown."""
    try:
        content = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigurationError(f"{SETTINGS_VARIABLE} is not JSON: {error}") from None
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ConfigurationError(
            f"{SETTINGS_VARIABLE} must be a JSON object of settings, not a {kind}"
        )
    return content


def _add_variable(name: str, value: str, found: _Settings) -> None:
    section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    head, _, tail = key.partition("_")
    if (section, head) in _MAPPINGS and tail:
        option = tail.replace("__", ".").replace("_", "-")
        found.put(f"{section}.{head}.{option}", value, name)
    elif name in _VARIABLES:
        found.put(_VARIABLES[name], value, name)
    elif section in _SECTIONS:
        meant = _meant(f"{section}.{key}")
        reason = f"did you mean '{_variable(meant)}'?" if meant else ""
        reason = reason or f"docs/configuration.md lists those of section {section!r}"
        raise ConfigurationError(f"{name}: no such setting; {reason}")
    elif suggestion := did_you_mean(name, _VARIABLES, cutoff=_MISSPELT):
        raise ConfigurationError(f"{name}: no such setting{suggestion}")
    # any other SLUICE_ variable is not a setting, for example SLUICE_FAILPOINTS


def _converted(value: Any, kind: type, where: str, key: str) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise ConfigurationError(f"{where}: expected true or false, found {value!r}")
    if kind is int:
        unit = _UNITS.get(key.rpartition("_")[2], "")
        wanted = f"expected a whole number{unit}, 0 or more"
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{where}: {wanted}, found {value!r}") from None
        if number < 0 or isinstance(value, float | bool):
            raise ConfigurationError(f"{where}: {wanted}, found {value!r}")
        return number
    if isinstance(value, list | dict):
        raise ConfigurationError(f"{where}: expected a text, found a {type(value).__name__}")
    return str(value)


_UNITS = {"ms": " of milliseconds", "bytes": " of bytes", "rows": " of rows"}
