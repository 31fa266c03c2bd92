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

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from sluice.catalog_options import with_type
from sluice.did_you_mean import closest, did_you_mean
from sluice.errors import ConfigurationError
from sluice.json_text import json_of
from sluice.masking import know, know_environment, secrets_in
from sluice.setting_limits import (
    check_lake_switch,
    check_limits,
    check_text,
    converted,
    lowered_defaults,
)

ENVIRONMENT_PREFIX = "SLUICE_"
SETTINGS_VARIABLE = "SLUICE_SETTINGS"
"""A JSON object of ``section.key``: value that overrides all other variables; holds secrets."""
SETTINGS_FILE_VARIABLE = "SLUICE_SETTINGS_FILE"
"""Path of a file with such an object, where others can read a process's variables."""

_CA_BYTES_MAX = 4 * 1024 * 1024
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


def is_pem(text: str) -> bool:
    """Whether a text is a PEM file's content rather than its path."""
    return "-----BEGIN" in text


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How the client reaches a cluster."""

    bootstrap: str = "grpc://127.0.0.1:9123"
    """Addresses of the cluster, separated by commas: grpc://HOST:PORT for the embedded server,
    fluss://HOST:PORT for Fluss's native protocol."""
    request_timeout_ms: int = 30_000
    """Longest wait for the answer to one request."""
    retry_timeout_ms: int = 120_000
    """Longest time for one call, retries included."""
    connect_timeout_ms: int = 120_000
    """Longest time for the first call, retries included, until a server has answered once. Commands
    wait 5 seconds at most."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Largest message that the client sends or accepts."""
    fetch_max_bytes: int = 16 * 1024 * 1024
    """Largest answer to one fetch of log data, over all buckets."""
    fetch_max_bytes_per_bucket: int = 2 * 1024 * 1024
    """Largest part of one bucket in such an answer. A batch is always returned complete."""
    scan_max_bytes: int = 4 * 1024 * 1024
    """Approximate size of a batch of a full scan (client.scanner.kv.fetch.max-bytes)."""
    scan_keep_alive_ms: int = 60_000
    """When the consumer of a full scan takes longer than this for a batch, the client fetches one
    more row, so that the server does not end the scan. Choose less than the server's
    kv.scanner.ttl."""
    writer_batch_bytes: int = 1024 * 1024
    """Approximate size of the Arrow data in one batch of the log writer."""
    writer_max_inflight: int = 4
    """Most requests that one log writer sends before the first is answered."""
    tiering_status_timeout_ms: int = 5_000
    """Longest access to the table sluice.tiering_status, without connecting. Sluice keeps statuses
    there on Apache Fluss clusters. A claim reads it for a minute, and then fails, because the table
    may be paused. A round that cannot write it continues."""
    tiering_backoff_ms: int = 10_000
    """Wait after a table's first failed round on an Apache Fluss cluster. Each further failure
    doubles it. The longest wait is the table's freshness, or five minutes if that is more. 0:
    no wait."""
    username: str = ""
    """User for SASL PLAIN, over fluss:// only (client.security.sasl.username)."""
    password: str = field(default="", repr=False)
    """Password for SASL PLAIN, over fluss:// only (client.security.sasl.password)."""
    token: str = field(default="", repr=False)
    """Bearer token, over grpc:// only. Needs TLS unless the server is on this machine."""
    tls: bool = False
    """Uses TLS over grpc:// and trusts public certificate authorities."""
    tls_ca: str = field(default="", repr=False)
    """Uses TLS over grpc:// and trusts these certificate authorities: path of a PEM file, or its
    text. Spark executors receive the text."""
    fs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Access to Fluss's remote storage, where the cluster itself provides none (client.fs.*).
    Accepts names of Fluss, Iceberg or Hadoop: s3.endpoint, s3.access-key, s3.secret-key, s3.region,
    ..."""

    def __post_init__(self) -> None:
        know(secrets_in(_values(self)))

    @property
    def has_tls(self) -> bool:
        return self.tls or bool(self.tls_ca)

    def within(self, most_ms: int) -> ClientConfig:
        """The same, but no call lasts longer, with connecting and retries."""
        names = ("connect_timeout_ms", "request_timeout_ms", "retry_timeout_ms")
        return replace(self, **{name: min(getattr(self, name), most_ms) for name in names})

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
            raise ConfigurationError(f"{where}: the text has no certificate; give one as PEM")
        return "\n".join(found) + "\n"

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle contains the text of ``tls_ca``, because the file may be missing elsewhere."""
        more = {"tls_ca": self.authorities(), "fs": dict(self.fs)}
        return ClientConfig, tuple((_values(self) | more).values())


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The embedded server."""

    data_dir: str = ""
    """Folder for all data of the server."""
    listen: str = "grpc://127.0.0.1:9123"
    """Addresses to bind to, separated by commas: grpc://HOST:PORT, fluss://HOST:PORT. Port 0 picks
    a free port. A fluss:// address needs a second port for the tablet server: the next one, or
    PORT2 in fluss://HOST:PORT?tablet=PORT2."""
    advertised_listeners: str = ""
    """Addresses that the server reports to clients in place of listen, where clients reach it by
    another host or port (advertised.listeners). Port 0 stands for the real port. Same form as
    listen."""
    insecure: bool = False
    """Allows an address other than loopback without TLS and users."""
    tls_certificate: str = ""
    """PEM file with the server's certificate, followed by its intermediate certificates. Enables
    TLS on all grpc:// addresses. A renewed file is used from the next connection on."""
    tls_key: str = ""
    """PEM file with the key of tls_certificate, without a password."""
    users_file: str = ""
    """File of users: lines of NAME ROLE SHA256 (docs/security.md). Users send a bearer token over
    grpc://, or name and token by SASL PLAIN over fluss://. Changes take effect at once. Empty: no
    login."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Largest request that the server accepts."""
    max_batch_rows: int = 1_000_000
    """Most rows in one log batch."""
    default_bucket_count: int = 1
    """Buckets of a table that was created without a number (default.bucket.number)."""
    segment_bytes: int = 256 * 1024 * 1024
    """Size at which a log segment is closed (log.segment.file-size)."""
    sync_interval_ms: int = 5_000
    """How often written log data is synced to disk. A power loss can take what was written since; a
    kill loses nothing."""
    log_ttl_check_interval_ms: int = 60_000
    """How often the server deletes log segments that are older than table.log.ttl. 0: never."""
    metrics: str = ""
    """HOST:PORT at which Prometheus reads /metrics over HTTP. Port 0 picks a free port. Empty: no
    metrics."""
    metrics_hosts: str = ""
    """More host names by which /metrics may be called, as METRICS.EXAMPLE,OTHER.EXAMPLE."""
    tiering_timeout_ms: int = 120_000
    """A round without a heartbeat for this long counts as failed. Sluice's workers are told and
    send three heartbeats within it. Those of earlier versions, and Fluss's tiering service, need at
    least 60000."""
    tiering_check_interval_ms: int = 15_000
    """How often the server looks for such rounds; by default at most tiering_timeout_ms."""
    tiering_backoff_ms: int = 10_000
    """Wait after a table's first failed round. Each further failure doubles it. The longest wait is
    the table's freshness, or five minutes if that is more. 0: no wait, as in Fluss."""
    auto_partition_check_interval_ms: int = 600_000
    """How often partitions are created and dropped by time (auto-partition.check.interval)."""
    kv_snapshot_interval_ms: int = 600_000
    """How often a changed bucket gets a new KV snapshot (kv.snapshot.interval). 0: never."""
    kv_snapshot_num_retained: int = 2
    """How many of the newest KV snapshots of a bucket are kept (kv.snapshot.num-retained). Leased
    snapshots are kept in addition."""
    kv_snapshot_lease_check_interval_ms: int = 60_000
    """How often the server looks for expired leases (kv.snapshot.lease.expiration-check-interval).
    A lease holds its snapshots until then."""
    kv_block_cache_bytes: int = 32 * 1024 * 1024
    """Memory for reading rows of primary-key tables, shared by all buckets
    (kv.rocksdb.block.cache-size)."""
    kv_write_buffer_bytes: int = 64 * 1024 * 1024
    """Memory for rows of primary-key tables that are not yet in files, shared by all buckets."""
    kv_max_open_tablets: int = 64
    """Most buckets of primary-key tables that are open at once. The server lowers it if the process
    may open few files. Other buckets are opened when they are used."""
    kv_scanner_ttl_ms: int = 600_000
    """A full scan (ScanKv) without a call for this long is ended (kv.scanner.ttl)."""
    kv_scanner_expiration_interval_ms: int = 30_000
    """How often the server looks for such scans (kv.scanner.expiration-interval); by default at
    most kv_scanner_ttl_ms."""
    kv_scanner_max_per_bucket: int = 8
    """Most full scans of one bucket at once (kv.scanner.max-per-bucket); of one user, half."""
    kv_scanner_max_per_server: int = 200
    """Most full scans at once (kv.scanner.max-per-server); of one user, half. Each keeps its bucket
    open, even beyond kv_max_open_tablets."""
    kv_scanner_max_batch_bytes: int = 10 * 1024 * 1024
    """Largest batch of a full scan, whatever the client requests (kv.scanner.max-batch-size). The
    last row may exceed it."""
    kv_scanner_max_replay_bytes: int = 64 * 1024 * 1024
    """Memory for the last batches of ended scans, kept for kv_scanner_ttl_ms in case an answer was
    lost. 0: none are kept."""
    max_workers: int = 32
    """Requests that are answered at once, for each address. gRPC accepts four calls for each of
    them at once, half of these of one host, and refuses more; clients retry."""
    idle_timeout_ms: int = 600_000
    """A native connection without a request for this long is closed
    (netty.connection.max-idle-time). A gRPC connection is replaced by another after this time."""


@dataclass(frozen=True, slots=True)
class DatalakeConfig:
    """The lake, with Fluss's names: ``datalake.format`` and ``datalake.iceberg.*``."""

    format: str = "iceberg"
    """Format of the lake: iceberg; or none for an embedded server without a lake, where a table may
    have keys that no lake allows, and none is ever tiered."""
    iceberg: Mapping[str, str] = field(default_factory=dict)
    """Properties of the Iceberg catalog: type, warehouse, uri, ... A path as warehouse and nothing
    else is of type hadoop. The property name is fluss-iceberg-catalog by default, as in Fluss."""
    enabled: str = ""
    """For an embedded server, as Fluss 1.0 has it. false: tables are bound to the format when they
    are created, and none can be tiered yet. true: it needs a format. Empty: the format decides."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "iceberg", with_type(self.iceberg))
        check_lake_switch(self.format, self.enabled)
        know(secrets_in(_values(self)))


@dataclass(frozen=True, slots=True)
class TieringConfig:
    """A round of tiering."""

    parallelism: int = 2
    """Splits that `sluice tier` copies at once: buckets, or parts of a bucket. `sluice maintain`
    converts as many buckets at once. Spark uses its own parallelism."""
    part_offsets: int = 1_000_000
    """If one bucket of a log table has a long backlog, several splits copy a part of it each. A
    part has at least about this number of log offsets. 0: one split copies the complete backlog of
    a bucket."""
    driver_copy_rows: int = 1_000_000
    """On Spark, a round with at most this number of rows is copied by threads of the driver. That
    costs less than a Spark job, whose Python workers have to start. If Spark's master is local,
    executors have no other machine: the limit is ten times as high. Set a lower number if rows have
    many kilobytes. Ten rows whose keys are looked up in the lake count as one. 0: executors copy
    every round."""
    tables_at_once: int = 0
    """Tables that one Spark application tiers at the same time. 0: as many as the driver has cores,
    and at least two."""
    row_group_rows: int = 512 * 1024
    """Rows that are gathered before a Parquet row group is written."""
    row_group_bytes: int = 64 * 1024 * 1024
    """Arrow data that is gathered before a Parquet row group is written. Bounds an executor's
    memory."""
    max_round_ms: int = 0
    """A round that has copied for this long ends at the next batch boundary and commits what it
    has; the table is queued again at once. 0: the table's freshness, and one minute at least."""
    max_round_bytes: int = 0
    """A round that has read this much log data ends in the same way. Buckets share it in proportion
    to their backlog, and each reads one batch at least. 0: no limit."""
    changes_memory_bytes: int = 256 * 1024 * 1024
    """Memory for the last change of each key, for each bucket of a primary-key table that is copied
    at one time. Larger sets go to spill_dir."""
    spill_dir: str = ""
    """Local folder for KV snapshot files while they are read, and for changes that exceed
    changes_memory_bytes. On executors too. Empty: the system's folder for temporary files."""
    position_lookup_bytes: int = 1024 * 1024 * 1024
    """A round of a primary-key table deletes the earlier rows of changed keys by their positions.
    To find them, it reads key columns of the lake's data files: at most this many bytes in a round,
    unless others rewrite the files meanwhile. Earlier positions are not counted. A bucket that
    needs more than its part gets equality deletes in that round. These make scans slow, and some
    engines refuse them. 0: every round writes equality deletes."""
    position_lookup_files: int = 200
    """Data files of one bucket in which a round looks up keys. A bucket with more files that may
    have the changed keys gets equality deletes in that round, until the table is compacted."""
    auto_compaction: bool = False
    """Compact all lake tables in their rounds, as if each had the property
    table.datalake.auto-compaction. A round rewrites small data files of the buckets that it copies,
    and those with many deleted rows. Of a primary-key table that is part of its commit."""
    compaction_bytes: int = 1024 * 1024 * 1024
    """Data files that a round rewrites at most. The buckets that gain the most come first. Rows
    beyond changes_memory_bytes go to spill_dir while they are sorted. A compaction that would take
    longer than the rest of the round is left to a later one. 0: no round compacts."""
    auto_expire_snapshot: bool = False
    """After a round that commits, old lake snapshots of the table expire, and files that no other
    snapshot has are deleted. The lake table's properties history.expire.* say which ones are old:
    by default those of more than 5 days. False: only for tables with the property
    table.datalake.auto-expire-snapshot=true."""
    jars: str = ""
    """Folder with Iceberg's runtime jar and the other jars that the catalog needs (a JDBC driver,
    iceberg-aws-bundle for s3://), for `sluice tier` and other commands that start a JVM. Empty:
    Sluice finds the runtime jar, or fetches it once."""


@dataclass(frozen=True, slots=True)
class Config:
    """All sections."""

    client: ClientConfig = field(default_factory=ClientConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    datalake: DatalakeConfig = field(default_factory=DatalakeConfig)
    tiering: TieringConfig = field(default_factory=TieringConfig)

    def secrets(self) -> tuple[str, ...]:
        """The values of all secret settings, to be masked wherever they appear."""
        return secrets_in({one.name: _values(getattr(self, one.name)) for one in fields(self)})


def _values(section: Any) -> dict[str, Any]:
    return {one.name: getattr(section, one.name) for one in fields(section)}


def load_config(
    path: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str | int | bool] | None = None,
    *,
    overrides_prefix: str = "",
) -> Config:
    """Builds the configuration from a TOML file, ``SLUICE_*`` variables and ``section.key`` pairs.

    :param overrides_prefix: what users write before an override's key; error messages repeat it.
    :raises ConfigurationError: for an unreadable file, an unknown key, a wrong value, or two values
        that do not work together; names them.
    """
    environment = environment or {}
    know_environment(environment)
    found = _Settings()
    if path is not None:
        _add_file(Path(path), found)
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            _add_variable(name, value, found)
    for where, text in _settings_texts(environment):
        for dotted, value in _settings(text, where).items():
            found.put(dotted, value, f"{where}: {dotted}")
    for dotted, override in (overrides or {}).items():
        found.put(dotted, override, f"{overrides_prefix}{dotted}", overrides_prefix)
    for name, values in found.sections.items():
        values |= lowered_defaults(name, values, _SECTIONS[name]())
    config = Config(**{name: _SECTIONS[name](**values) for name, values in found.sections.items()})
    for name in found.sections:
        check_limits(name, _values(getattr(config, name)))
    return config


_SECTIONS: dict[str, Any] = get_type_hints(Config)
_MAPPINGS = {("datalake", "iceberg"), ("client", "fs")}
_KEYS = {
    f"{section}.{key}": hint
    for section, cls in _SECTIONS.items()
    for key, hint in get_type_hints(cls).items()
}


def _variable(dotted: str) -> str:
    """The variable of a setting, or of a group's option NAME."""
    named = f"{dotted}.NAME" if tuple(dotted.split(".")) in _MAPPINGS else dotted
    return ENVIRONMENT_PREFIX + named.replace(".", "_").upper()


_VARIABLES = {_variable(d): d for d in _KEYS if tuple(d.split(".")) not in _MAPPINGS}
_MISSPELT, _MISSPELT_SECTION = 0.95, 0.9
"""How similar the name of a variable outside of the sections must be to that of a setting, and the
name of its section: ``servr`` is refused, ``service`` is not."""
_OF_SERVICE = re.compile(
    r"SLUICE(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
"""Variables that Kubernetes sets in each pod for a Service whose name begins with ``sluice``."""


def _is_of_service(name: str, value: str) -> bool:
    return bool(_OF_SERVICE.fullmatch(name)) or (name.endswith("_PORT") and "://" in value)


class _Settings:
    """The values that were found so far, by section."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}

    def put(self, dotted: str, value: Any, where: str, prefix: str = "") -> None:
        """Adds a value, in place of an earlier one.

        :param dotted: ``section.key``, or ``section.key.NAME`` of a group of options.
        :param where: the start of an error message.
        :param prefix: the start of a suggested key.
        :raises ConfigurationError: there is no such setting, or it cannot have this value.
        """
        section, _, rest = dotted.partition(".")
        key, _, name = rest.partition(".")
        hint = _KEYS.get(f"{section}.{key}")
        if hint is None:
            raise ConfigurationError(f"{where}: {unknown_setting(dotted, prefix)}")
        check_text(key, str(value), where)
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
            self.sections[section][key] = converted(value, hint, where, key)


def unknown_setting(dotted: str, prefix: str = "") -> str:
    """The reason why ``section.key`` is no setting, with the setting that may be meant.

    :param prefix: the start of a suggested key.
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
        settings = {section: list(_flat(section, values)) for section, values in content.items()}
    except RecursionError:
        raise ConfigurationError(f"{path}: the tables are nested too deep") from None
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
        for dotted, key, value in settings[section]:
            found.put(dotted, value, f"{_place(path, text, section, key)}: {dotted}")


def _flat(section: str, values: Any) -> Iterator[tuple[str, str, Any]]:
    """Settings with their values, and the key at the start of their line."""
    if not isinstance(values, dict):
        return
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


def _settings_texts(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The JSON objects of settings and where they are from, the one that counts most last.

    :raises ConfigurationError: the file cannot be read.
    """
    if path := environment.get(SETTINGS_FILE_VARIABLE):
        where = f"{SETTINGS_FILE_VARIABLE}: {path}"
        try:
            yield where, Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{where}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{where}: the file is not UTF-8; save it as UTF-8") from None
    if text := environment.get(SETTINGS_VARIABLE):
        yield SETTINGS_VARIABLE, text


def _settings(text: str, where: str) -> dict[str, Any]:
    """:raises ConfigurationError: no JSON object; the text may hold secrets and is not shown."""
    try:
        content = json_of(text)
    except ValueError as error:
        raise ConfigurationError(f"{where} is not JSON: {error}") from None
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ConfigurationError(f"{where} must be a JSON object of settings, not a {kind}")
    return content


def _add_variable(name: str, value: str, found: _Settings) -> None:
    section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    head, _, tail = key.partition("_")
    if name in _VARIABLES:
        found.put(_VARIABLES[name], value, name)
    elif _is_of_service(name, value):
        return
    elif (section, head) in _MAPPINGS and tail:
        option = tail.replace("__", ".").replace("_", "-")
        found.put(f"{section}.{head}.{option}", value, name)
    elif (section, head) in _MAPPINGS:
        raise ConfigurationError(
            f"{name}: a group of options has no value of its own; set"
            f" {_variable(f'{section}.{head}')} ({section}.{head}.NAME)"
        )
    elif section in _SECTIONS:
        meant = _meant(f"{section}.{key}")
        reason = f"did you mean '{_variable(meant)}'?" if meant else ""
        reason = reason or f"docs/configuration.md lists those of section {section!r}"
        raise ConfigurationError(f"{name}: no such setting; {reason}")
    elif suggestion := did_you_mean(name, _VARIABLES, cutoff=_MISSPELT):
        raise ConfigurationError(f"{name}: no such setting{suggestion}")
    elif key and (near := closest(section, _SECTIONS, cutoff=_MISSPELT_SECTION)):
        raise ConfigurationError(
            f"{name}: no such setting; did you mean a setting of section {near!r}?"
            " docs/configuration.md lists them"
        )
    # any other SLUICE_ variable is not a setting, for example SLUICE_FAILPOINTS
