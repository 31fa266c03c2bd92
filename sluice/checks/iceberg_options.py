"""Checks catalog options like Iceberg's CatalogUtil does, but without a JVM."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.catalog_options import LAYOUT, is_on_object_store, kind_of, misspelt, names_catalog
from sluice.did_you_mean import closest, did_you_mean
from sluice.iceberg_rules.layout import Layout
from sluice.storage import storage_options, unknown_options

_PREFIX = "datalake.iceberg."
NEEDS: dict[str, tuple[str, ...]] = {
    "hadoop": ("warehouse",),
    "hive": (),
    "rest": ("uri",),
    "glue": (),
    "nessie": ("uri", "warehouse"),
    "jdbc": ("uri", "warehouse"),
    "bigquery": (),
}
"""Every catalog type of Iceberg 1.11 and 1.12, and its required options."""
_KNOWN = (
    LAYOUT,
    *("type", "catalog-impl", "io-impl", "warehouse", "uri", "name", "prefix", "ref", "clients"),
    *("cache-enabled", "cache.expiration-interval-ms", "metrics-reporter-impl", "lock-impl"),
    *("app-id", "app-name", "user", "unique-table-location", "auth.session-timeout-ms"),
    *("token", "credential", "scope", "audience", "resource", "oauth2-server-uri"),
    *("token-expires-in-ms", "token-refresh-enabled", "token-exchange-enabled"),
    *("snapshot-loading-mode", "rest-metrics-reporting-enabled", "rest-page-size"),
    *("namespace-separator", "scan-planning-mode", "view-endpoints-supported"),
    *("glue.id", "glue.endpoint", "glue.skip-archive", "glue.skip-name-validation"),
    *("jdbc.user", "jdbc.password", "jdbc.schema-version", "jdbc.init-catalog-tables"),
    *("rest.auth.type", "rest.auth.basic.username", "rest.auth.basic.password"),
    *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
    *("list-all-tables", "client-pool-cache-keys", "client.pool.cache.eviction-interval-ms"),
)
"""Options of Iceberg 1.12's catalogs: ``CatalogProperties``, ``OAuth2Properties``,
``AuthProperties``, ``RESTCatalogProperties``, ``AwsProperties``, ``JdbcUtil``."""
_OPEN = ("jdbc.", "io.manifest.", "header.", "table-default.", "table-override.")
"""How names begin that drivers and servers choose, or of which there are many."""
_LAYOUTS = tuple(one.value for one in Layout)
_ALIKE_ANY = 0.8
_AIRFLOW = "iceberg."
"""How Airflow's connection begins these names, which have the whole prefix in a file."""
_TYPE_OF_SCHEME = {"http": "rest", "https": "rest", "jdbc": "jdbc"}
_ELSEWHERE = {"type": "catalog-type"}
"""Flink's names of Iceberg's options."""
_NAMES = ("type", "catalog-impl", "uri", "warehouse")
_ALIKE = 0.65


def type_of(options: Mapping[str, str]) -> str:
    """The catalog type in lower case, as Iceberg compares it; empty if it is not set."""
    return options.get("type", "").lower()


def wrong(options: Mapping[str, str]) -> str:
    """An error that further options cannot fix; empty if there is none."""
    kind, own = options.get("type"), options.get("catalog-impl")
    for name in sorted(options):
        plain = name.removeprefix(_AIRFLOW)
        if plain != name and (plain in _KNOWN or storage_options({plain: options[name]})):
            return f"{_PREFIX}{name}: write {_PREFIX}{plain}, without the second iceberg."
    if options.get(LAYOUT, "").lower() not in ("", *_LAYOUTS):
        return f"{_PREFIX}{LAYOUT}={options[LAYOUT]!r}: use {' or '.join(_LAYOUTS)}, or remove it"
    if type_of(options) == "rest" and options.get("uri") and "://" not in options["uri"]:
        return f"{_PREFIX}uri={options['uri']} has no scheme: write https:// or http:// before it"
    if kind is not None and own is not None:
        return (
            f"{_PREFIX}type={kind} and {_PREFIX}catalog-impl exclude each other: remove one of them"
        )
    if own == "":
        return (
            f"{_PREFIX}catalog-impl is empty: set it to a class, or remove it and set {_PREFIX}type"
        )
    if kind is None or kind.lower() in NEEDS:
        return ""
    meant = did_you_mean(kind, NEEDS, cutoff=_ALIKE)
    return (
        f"{_PREFIX}type={kind!r} is not a catalog type of Iceberg; use one of"
        f" {', '.join(NEEDS)}{meant}"
    )


def missing(options: Mapping[str, str]) -> str:
    """The missing option, and where to set it; empty if none is missing.

    Without a type, Iceberg uses hive. That is accepted, unless another option looks like a
    misspelt type, class or address.
    """
    if "type" not in options and "catalog-impl" not in options:
        meant = _foreign("type", options)
        if not meant and (found := misspelt(options)) is not None:
            meant = _hint(*found)
        meant = meant or _needed_type(options)
        return f"{_PREFIX}type is not set; {meant}" if meant else ""
    for option in NEEDS.get(type_of(options), ()):
        if not options.get(option):
            why = (
                f"{_PREFIX}type={options['type']} needs {_PREFIX}{option}, which is not set: set it"
                f" where the type is set (in Airflow: iceberg.{option} in the field Lake of the"
                " Fluss connection)"
            )
            meant = _meant(option, options)
            return f"{why}; {meant}" if meant else why
    return ""


def _needed_type(options: Mapping[str, str]) -> str:
    """What to set where Iceberg's default type, hive, cannot be meant; empty if it can."""
    scheme = options.get("uri", "").partition(":")[0].lower()
    if scheme in _TYPE_OF_SCHEME:
        return (
            f"{_PREFIX}uri={scheme}:... is of a catalog of type {_TYPE_OF_SCHEME[scheme]}: set it"
        )
    warehouse = options.get("warehouse", "")
    if is_on_object_store(warehouse) and "uri" not in options:
        store = warehouse.partition(":")[0]
        return (
            f"a warehouse on {store}:// needs a catalog: set it to rest, jdbc, glue or nessie, or"
            " to hive and its uri. hadoop is safe on stores with rename only, as HDFS"
        )
    if warehouse and "/" not in warehouse and not names_catalog(options):
        return (
            f"{_PREFIX}warehouse={warehouse} is no path: for a folder write ./{warehouse}, for a"
            f" warehouse of that name in a REST catalog set {_PREFIX}type=rest and {_PREFIX}uri"
        )
    return ""


def cautions(options: Mapping[str, str]) -> list[str]:
    """What options let happen that a user hardly wants: misspelt ones, commits that can be lost."""
    return near_misses(options) + _unsafe_commits(options)


def _unsafe_commits(options: Mapping[str, str]) -> list[str]:
    """A caution about a hadoop catalog on a store that may have no atomic rename."""
    warehouse = options.get("warehouse", "")
    if kind_of(options) != "hadoop" or not is_on_object_store(warehouse) or "lock-impl" in options:
        return []
    return [
        f"{_PREFIX}type=hadoop commits by a rename, which is not atomic on {warehouse}: of two"
        " commits at the same time one can be lost, with its rows. Use a rest, jdbc, glue, hive or"
        f" nessie catalog, or set {_PREFIX}lock-impl for all writers"
    ]


def near_misses(options: Mapping[str, str]) -> list[str]:
    """What options look like a misspelt one, and which. Iceberg ignores options without a word."""
    found = []
    for name in sorted(options):
        is_known = name in _KNOWN or name in _ELSEWHERE.values() or name.startswith(_OPEN)
        meant = None if is_known else closest(name, _KNOWN, cutoff=_ALIKE_ANY)
        if meant is not None:
            found.append((name, meant))
    found += [(name, meant) for name, meant in unknown_options(options) if meant is not None]
    return [
        f"{_PREFIX}{name} is no option of Iceberg: did you mean {_PREFIX}{meant}?"
        for name, meant in found
    ]


def _meant(option: str, options: Mapping[str, str]) -> str:
    """A hint at a given option that may be a misspelling of this one; empty if there is none."""
    near = closest(option, (name for name in options if name not in _NAMES), cutoff=_ALIKE)
    return _hint(near, option) if near else ""


def _foreign(option: str, options: Mapping[str, str]) -> str:
    """A hint at Flink's name of an option; empty if it is not given, or hive as without a type."""
    name = _ELSEWHERE[option]
    return "" if options.get(name, "hive").lower() == "hive" else _hint(name, option)


def _hint(given: str, meant: str) -> str:
    return f"{_PREFIX}{given}: did you mean {_PREFIX}{meant}?"
