"""What a lake's settings let this machine look at."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sluice.checks.findings import Finding, run_checks
from sluice.checks.iceberg_options import missing, near_misses
from sluice.checks.lake import KEYS, CheckScope, check_lake, lake_checks
from sluice.config import Config, DatalakeConfig
from sluice.errors import ConfigurationError
from tests.simulation.clock import START_MS, ManualClock
from tests.support.clusters.s3_server import S3Server
from tests.support.network.ports import kept_port

ALL_HERE = CheckScope()
DRIVER_HERE = CheckScope(executors_are_here=False, hdfs=False)
NOTHING_HERE = CheckScope(driver_is_here=False, executors_are_here=False, hdfs=False)


def looked(scope: CheckScope = ALL_HERE, **iceberg: str) -> list[Finding]:
    options = {name.replace("__", ".").replace("_", "-"): value for name, value in iceberg.items()}
    config = Config(datalake=DatalakeConfig(iceberg=options))
    return run_checks(lake_checks(config, scope), config.secrets(), timeout_s=30)


def test_a_warehouse_on_this_machine(tmp_path: Path) -> None:
    where = f"{tmp_path}/lake"
    for warehouse in (where, f"file://{where}"):
        configured, write = looked(type="hadoop", warehouse=warehouse)
        assert configured.seen == f"iceberg, catalog hadoop at {warehouse}"
        assert write == Finding(
            f"write to the lake, {warehouse}", True, "a file was written, read and removed"
        )
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scope", "ok"), [(ALL_HERE, False), (DRIVER_HERE, False), (NOTHING_HERE, None)]
)
def test_a_path_below_a_file(scope: CheckScope, ok: bool | None, tmp_path: Path) -> None:
    """The driver writes there, wherever the executors are."""
    (tmp_path / "lake").touch()
    _, write = looked(scope, type="hadoop", warehouse=f"{tmp_path}/lake/house")
    assert write.ok is ok
    assert ("NotADirectoryError" in write.seen) == (ok is False)


@pytest.mark.parametrize("catalog", ["rest", "glue", "hive", "jdbc"])
def test_a_catalog_may_keep_its_tables_elsewhere(catalog: str, tmp_path: Path) -> None:
    """A table has a location of its own there: the warehouse need not be writable."""
    (tmp_path / "lake").touch()
    uri = {"uri": "other://catalog"} if catalog in ("rest", "jdbc") else {}
    write = looked(type=catalog, warehouse=f"{tmp_path}/lake/house", **uri)[-1]
    assert write.ok is None, write


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"uri": "http://catalog/iceberg"}, "uri=http:... is of a catalog of type rest"),
        ({"uri": "jdbc:sqlite:/c.db", "warehouse": "s3://lake"}, "of a catalog of type jdbc"),
        ({"warehouse": "s3://lake/w"}, "a warehouse on s3:// needs a catalog"),
        ({"type": "rest", "uri": "127.0.0.1:8181/iceberg"}, "has no scheme: write https://"),
        (
            {"type": "rest", "uri": "http://c", "iceberg.warehouse": "w"},
            "write datalake.iceberg.warehouse, without the second iceberg.",
        ),
    ],
)
def test_what_a_first_user_gets_wrong(options: dict[str, str], told: str) -> None:
    config = Config(datalake=DatalakeConfig(iceberg=options))
    [found, *_] = run_checks(lake_checks(config, ALL_HERE), (), timeout_s=30)
    assert found.ok is False
    assert told in found.seen
    with pytest.raises(ConfigurationError):
        check_lake(config)


def test_iceberg_itself_may_have_such_names() -> None:
    options = {"type": "hive", "uri": "thrift://m:9083", "iceberg.hive.lock-timeout-ms": "9"}
    check_lake(Config(datalake=DatalakeConfig(iceberg=options)))


def test_no_lake() -> None:
    [found] = looked()
    assert found.ok is False
    assert "no lake is configured: set datalake.iceberg.type" in found.seen
    [found] = looked(NOTHING_HERE)
    assert found.ok is None
    config = Config(datalake=DatalakeConfig(format="parquet", iceberg={"type": "hadoop"}))
    found = run_checks(lake_checks(config, NOTHING_HERE)[:1])[0]
    assert found == Finding("lake configured", False, found.seen)
    assert "datalake.format=parquet" in found.seen


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"type": "hadoop"}, "warehouse"),
        ({"type": "Hadoop", "warehouse": ""}, "warehouse"),
        ({"type": "rest", "warehouse": "main"}, "uri"),
        ({"type": "jdbc", "warehouse": "/lake"}, "uri"),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/srv/catalog.db"}, "warehouse"),
        ({"type": "nessie", "warehouse": "/lake"}, "uri"),
        ({"type": "nessie", "uri": "http://127.0.0.1:1/"}, "warehouse"),
    ],
)
def test_what_iceberg_demands_of_a_type(options: dict[str, str], missing: str) -> None:
    [found] = looked(**options)
    assert found.ok is False
    assert found.seen == (
        f"datalake.iceberg.type={options['type']} needs datalake.iceberg.{missing}, which is not"
        f" set: set it where the type is set (in Airflow: iceberg.{missing} in the field"
        " Lake of the Fluss connection)"
    )
    [found] = looked(NOTHING_HERE, **options)
    assert found.ok is None
    assert found.seen.startswith(
        "the driver may have its own settings; on this machine: datalake.iceberg."
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"type": "hadoop", "warehous": "/x"},
            "warehous: did you mean datalake.iceberg.warehouse?",
        ),
        ({"typ": "hadoop"}, "type is not set; "),
        ({"type": "hadoop", "wharehouse": "/x"}, "wharehouse: did you mean"),
        ({"type": "rest", "url": "http://x"}, "url: did you mean datalake.iceberg.uri?"),
        ({"typ": "hadoop", "warehouse": "/x"}, "typ: did you mean datalake.iceberg.type?"),
        ({"catalog_type": "hadoop", "warehouse": "/x"}, "catalog-type: did you mean"),
        ({"url": "http://x", "warehouse": "/x"}, "url: did you mean datalake.iceberg.uri?"),
        ({"URI": "http://x", "warehouse": "/x"}, "URI: did you mean datalake.iceberg.uri?"),
        ({"tpye": "rest", "warehouse": "/x"}, "tpye: did you mean datalake.iceberg.type?"),
        ({"tpye": "rest", "warehouse": "main"}, "tpye: did you mean datalake.iceberg.type?"),
        ({"catalog_imp": "a.B"}, "catalog-imp: did you mean datalake.iceberg.catalog-impl?"),
    ],
)
def test_an_option_of_nearly_that_name(options: dict[str, str], told: str) -> None:
    [found] = looked(**options)
    assert found.ok is False
    assert f"datalake.iceberg.{told}" in found.seen
    assert looked(NOTHING_HERE, **options)[0].ok is None


def test_a_name_for_a_warehouse_starts_no_hive_in_the_current_folder() -> None:
    [found] = looked(warehouse="main")
    assert found.ok is False
    assert found.seen == (
        "datalake.iceberg.type is not set; datalake.iceberg.warehouse=main is no path: for a"
        " folder write ./main, for a warehouse of that name in a REST catalog set"
        " datalake.iceberg.type=rest and datalake.iceberg.uri"
    )
    for own in ({"uri": "thrift://127.0.0.1:1"}, {"hive.metastore.uris": "thrift://127.0.0.1:1"}):
        assert missing({"warehouse": "main", **own}) == ""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("warehous", "warehouse"),
        ("credentials", "credential"),
        ("oauth2-server-url", "oauth2-server-uri"),
        ("s3.endpont", "s3.endpoint"),
        ("s3.access-key-ids", "s3.access-key-id"),
        ("gcs.projectid", "gcs.project-id"),
    ],
)
def test_an_option_that_iceberg_would_ignore_is_warned_of(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"type": "rest", "uri": "http://127.0.0.1:1", name: "x"}
    told = (
        f"datalake.iceberg.{name} is no option of Iceberg: did you mean datalake.iceberg.{meant}?"
    )
    assert [(one.ok, one.seen) for one in looked(**options)][1] == (None, told)
    check_lake(Config(datalake=DatalakeConfig("iceberg", options)))
    assert caplog.messages == [told]


@pytest.mark.parametrize(
    "name",
    [
        "header.X-Team",
        "table-default.write.x",
        "my.own.option",
        "ref",
        "jdbc.user",
        "jdbc.useSSL",
        "glue.id",
    ],
)
def test_other_options_are_left_alone(name: str) -> None:
    assert near_misses({"type": "rest", "uri": "http://127.0.0.1:1", name: "x"}) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"type": "hadop", "warehouse": "/x"},
            "datalake.iceberg.type='hadop' is not a catalog type of Iceberg; use one of hadoop,"
            " hive, rest, glue, nessie, jdbc, bigquery; did you mean 'hadoop'?",
        ),
        ({"type": "", "warehouse": "/x"}, "datalake.iceberg.type='' is not a catalog type"),
        ({"type": "hadoop ", "warehouse": "/x"}, "; did you mean 'hadoop'?"),
        ({"type": "rest", "catalog_impl": "a.B", "uri": "http://x"}, "remove one of them"),
        ({"catalog_impl": ""}, "datalake.iceberg.catalog-impl is empty"),
    ],
)
@pytest.mark.parametrize("scope", [ALL_HERE, NOTHING_HERE])
def test_a_catalog_that_iceberg_refuses(
    scope: CheckScope, options: dict[str, str], told: str
) -> None:
    """Wherever the driver is: no further setting makes it right."""
    [found] = looked(scope, **options)
    assert found.ok is False
    assert told in found.seen


def test_a_catalog_of_its_own_class_and_icebergs_default(tmp_path: Path) -> None:
    own = looked(catalog_impl="org.example.Catalog", warehouse=f"{tmp_path}/lake")[0]
    assert own.ok
    assert own.seen == f"iceberg, catalog of a custom class at {tmp_path}/lake"
    default = looked(uri="thrift://127.0.0.1:x")[0]
    assert default.ok is None, "Iceberg takes it; nobody has said that it is meant"
    assert default.seen == (
        "iceberg, catalog hive (Iceberg's default) at thrift://127.0.0.1:x;"
        " set datalake.iceberg.type to be sure"
    )
    assert looked(uri="thrift://127.0.0.1:x", lock_impl="a.B", io_impl="a.C")[0] == default
    assert looked(uri="thrift://127.0.0.1:x", catalog_type="hive")[0] == default, "as without"
    assert looked(uri="thrift://127.0.0.1:x", catalog_id="7", catalog_name="a")[0] == default
    assert looked(type="HADOOP", warehouse=f"{tmp_path}/lake")[1].ok


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:{port}/catalog",
        "https://bob:planted@127.0.0.1:{port}",
        "thrift://127.0.0.1:{port}",
        "jdbc:postgresql://127.0.0.1:{port}/lake?user=u&password=planted",
        "jdbc:mysql://127.0.0.1:{port}",
    ],
)
def test_a_catalog_that_listens_and_one_that_does_not(uri: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        _, catalog, write = looked(type="rest", uri=uri.format(port=port), warehouse="main")
        assert catalog == Finding("lake catalog", True, f"127.0.0.1:{port} accepts connections")
        assert write == Finding("write to the lake", None, "the catalog determines the location")
    with kept_port() as port:
        for scope, ok in ((ALL_HERE, False), (DRIVER_HERE, None), (NOTHING_HERE, None)):
            found = looked(scope, type="rest", uri=uri.format(port=port))
            assert found[1].ok is ok
            assert "Connection refused" in found[1].seen
            assert "planted" not in str(found)
            assert found[1].may_pass == (ok is False)
            assert (f"correct datalake.iceberg.uri (127.0.0.1:{port})" in found[1].seen) == (
                ok is False
            )


@pytest.mark.parametrize(
    "options",
    [
        {"type": "glue"},
        {"type": "jdbc", "uri": "jdbc:sqlite:/srv/catalog.db", "warehouse": "/x"},
        {"type": "jdbc", "uri": "jdbc:postgresql://a:1,b:2/lake", "warehouse": "/x"},
        {"type": "jdbc", "uri": "jdbc:postgresql://bob:12/planted@db/lake", "warehouse": "/x"},
        {"type": "jdbc", "uri": "jdbc:oracle:thin:@//127.0.0.1:1/x", "warehouse": "/x"},
        {"type": "rest", "uri": "http://127.0.0.1:x/"},
        {
            "type": "rest",
            "uri": "http://127.0.0.1:1/",
            "rest__client__proxy__hostname": "proxy",
        },
    ],
)
def test_catalogs_that_only_spark_reaches(options: dict[str, str]) -> None:
    _, catalog, _ = looked(**options)
    assert catalog == Finding("lake catalog", None, "only Spark can check it")


END = str(START_MS + 1_000_000)
S3_ENDS = {"s3.session-token": "planted", "s3.session-token-expires-at-ms": END}
GCS_ENDS = {"gcs.oauth2.token": "planted", "gcs.oauth2.token-expires-at": END}
AZURE_ENDS = {"adls.sas-token.a": "se=2023-11-14T22%3A30%3A00Z&sig=planted"}


@pytest.mark.parametrize(
    ("options", "warehouse"),
    [
        (S3_ENDS, "s3a://lake/house"),
        (S3_ENDS, "main"),
        (GCS_ENDS, "gs://lake/house"),
        (AZURE_ENDS, "abfss://lake@a.dfs.core.windows.net/house"),
        (AZURE_ENDS, "main"),
    ],
)
def test_the_end_of_a_token_of_the_users(options: dict[str, str], warehouse: str) -> None:
    """Only a catalog's own keys are renewed."""

    def found(passed_ms: int, scope: CheckScope = ALL_HERE) -> Finding:
        lake = {"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": warehouse, **options}
        config = Config(datalake=DatalakeConfig(iceberg=lake))
        clock = ManualClock()
        clock.advance(passed_ms)
        checks = lake_checks(config, scope, clock)
        [keys] = run_checks([one for one in checks if one.what == KEYS], config.secrets())
        return keys

    ends = "the token of the store in datalake.iceberg ends in 16 min; nobody renews it"
    assert found(0).ok is True
    assert found(0).seen.startswith(ends)
    ended = found(1_000_000 + 50_000)
    assert (ended.ok, ended.seen) == (
        False,
        "the token of the store in datalake.iceberg ended 50 s ago, and nobody renews it: set a new"
        " one",
    )
    assert found(2_000_000, NOTHING_HERE).ok is None, "the driver may have settings of its own"


@pytest.mark.parametrize(
    "options",
    [
        {"s3.session-token": "planted"},
        {"s3.session-token-expires-at-ms": "1"},
        {**GCS_ENDS, "warehouse": "s3://lake/house"},
    ],
)
def test_a_token_without_an_end_or_of_another_store(options: dict[str, str]) -> None:
    config = Config(datalake=DatalakeConfig(iceberg={"type": "glue", **options}))
    assert KEYS not in {one.what for one in lake_checks(config, ALL_HERE)}


def test_an_end_that_is_no_time() -> None:
    lake = {"type": "glue", **S3_ENDS, "s3.session-token-expires-at-ms": "soon"}
    config = Config(datalake=DatalakeConfig(iceberg=lake))
    [keys] = run_checks([one for one in lake_checks(config, ALL_HERE) if one.what == KEYS])
    assert keys.ok is False
    assert keys.seen.startswith("s3.session-token-expires-at-ms=")
    assert keys.seen.endswith("a time in epoch milliseconds is expected")


def test_hdfs_is_left_to_spark() -> None:
    _, write = looked(DRIVER_HERE, type="hadoop", warehouse="hdfs://127.0.0.1:1/lake")
    assert write == Finding(
        "write to the lake, hdfs://127.0.0.1:1/lake", None, "only Spark can check HDFS"
    )


@pytest.mark.slow
def test_s3_with_the_keys_of_the_lake() -> None:
    with S3Server() as server:
        server.bucket("lake")
        server.allowed = {"tester": ""}
        options = {"type": "hadoop", "warehouse": "s3a://lake/house"}
        good = {k.replace(".", "__").replace("-", "_"): v for k, v in server.options().items()}
        _, unsafe, written = looked(**options, **good)
        assert written.ok
        assert unsafe.ok is None
        assert "one can be lost, with its rows. Use a rest, jdbc" in unsafe.seen
        options["lock_impl"] = "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager"
        assert looked(**options, **good)[1].ok
        bad = {**good, "s3__access_key_id": "stranger", "s3__secret_access_key": "planted-secret"}
        for scope, ok in ((ALL_HERE, False), (DRIVER_HERE, None)):
            found = looked(scope, **options, **bad)
            assert found[1].ok is ok, found
            assert "planted" not in str(found)
        rest = {**options, "type": "rest", "uri": "other://catalog"}
        assert looked(NOTHING_HERE, **rest, **bad)[-1].ok is None
        # a store knows its buckets, whichever machine asks
        elsewhere = {**rest, **good, "warehouse": "s3://no-such-bucket/house"}
        assert looked(NOTHING_HERE, **elsewhere)[-1].ok is None
        assert looked(DRIVER_HERE, **elsewhere)[-1].ok is False
        half = {**rest, **good}
        del half["s3__secret_access_key"]
        lacking = looked(DRIVER_HERE, **half)[-1]
        assert lacking.ok is False
        assert "s3.secret-access-key is missing" in lacking.seen
