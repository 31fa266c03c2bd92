"""`sluice doctor` opens what rounds open: it ends with 1 where a round could not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.driver.lakes.opened_lake import opened_lake_findings
from sluice.errors import ConfigurationError, LakeNotWritable, UnsupportedLakeOption
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TablePath
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import fill, numbers_table
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.catalogs.servers import STATIC
from tests.support.catalogs.vending import Vending

pytestmark = pytest.mark.long
HAS_TABLE = "HEAD /v1/p%2F1/namespaces/{namespace}/tables/{table}"
Findings = dict[str, tuple[bool | None, str]]


def doctor(site: RoundSite, *words: str, **options: str) -> tuple[int, Findings]:
    lake = site.catalog.options | {n.replace("__", "."): value for n, value in options.items()}
    config = site.folder / "doctor.toml"
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in lake.items()]
    config.write_text("[datalake.iceberg]\n" + "\n".join(lines))
    environment = {
        "SLUICE_CLIENT_BOOTSTRAP": site.config.client.bootstrap,
        "SLUICE_TIERING_JARS": str(site.catalog.jars),
    }
    arguments = ["doctor", "--format", "json", *(words or ("--config", str(config)))]
    done = CliRunner().invoke(cli, arguments, env=environment)
    return done.exit_code, {
        one["what"]: (one["ok"], one["result"] + one["seen"]) for one in json.loads(done.stdout)
    }


def test_a_catalog_that_vends_keys(store: IamS3, tmp_path: Path) -> None:
    settings = RestSettings(vending=Vending.CONFIG, key_life_s=1000)
    with rest_server(store, settings) as server:
        catalog = Catalog(server.options, jars_with_s3())
        with round_site(catalog, tmp_path) as site:
            code, found = doctor(site)
            told = "no table has tiering enabled, so there is none whose files could be written"
            assert (code, found["write a table's files"]) == (0, (None, told))
            assert found["open the lake"][1] == "Iceberg's client has opened the catalog rest"
            path = numbers_table(site)
            code, found = doctor(site)
            assert (code, found["write a table's files"][0]) == (0, True), "of a staged table"
            fill(site, path, 0, 5)
            site.tier(path)

            code, found = doctor(site)
            assert code == 0, found
            assert found["write a table's files"][1].startswith("Sluice and Iceberg's client have")
            ends = found["keys of the lake's store"]
            assert ends == (True, "the catalog gives keys that end in 16 min; rounds renew them")

            server.login.end_all()
            code, found = doctor(site, credential="nobody:with-no-secret")
            assert (code, found["open the lake"][0]) == (1, False)
            assert "with-no-secret" not in str(found)

            own = {n.replace(".", "__"): v for n, v in store.assume_role(1000).options().items()}
            code, found = doctor(site, **own)
            assert code == 0, found
            ends = "the token of the store in datalake.iceberg ends in 16 min; nobody renews it"
            assert found["keys of the lake's store"][1].startswith(ends)
            code, found = doctor(site, **own | {"s3__session-token-expires-at-ms": "1000"})
            assert code == 1
            assert "h ago, and nobody renews it" in found["keys of the lake's store"][1]

            # the user's own options override those of the catalog, also wrong ones
            code, found = doctor(site, s3__endpoint="http://127.0.0.1:1")
            assert (code, found["write a table's files"][0]) == (1, False)
            assert "127.0.0.1:1" in found["write a table's files"][1]

            code, found = doctor(site, "--warehouse", str(tmp_path / "other"))
            assert code == 1
            seen = found[f"table {path}"][1]
            assert seen.startswith("not in this lakeFluss has registered lake snapshot")


@pytest.mark.parametrize("name", ["glue", "jdbc-sqlite", "hive3"])
def test_before_the_first_database(store: IamS3, tmp_path: Path, name: str) -> None:
    """Some catalogs stage a table without its namespace; to others nothing can be written yet."""
    with STATIC[name](store) as catalog, round_site(catalog, tmp_path) as site:
        numbers_table(site)
        code, found = doctor(site)
        assert code == 0, found
        is_staged = name == "jdbc-sqlite"
        ok, seen = found["write a table's files"]
        assert ok is (True if is_staged else None)
        assert is_staged or "the first round creates database shop" in seen
        assert found[f"write to the lake, {catalog.options['warehouse']}"][0] is True


def test_what_cannot_be_written_is_refused_before_anything_is_made(
    store: IamS3, tmp_path: Path
) -> None:
    with rest_server(store, RestSettings(vending=Vending.SIGNING)) as server:
        catalog = Catalog(server.options, jars_with_s3())
        with round_site(catalog, tmp_path) as site:
            path = numbers_table(site)
            fill(site, path, 0, 5)
            with pytest.raises(UnsupportedLakeOption, match="signs each request itself"):
                site.tier(path)
            lake = IcebergLake(site.jvm.gateway, catalog.options)
            assert not lake.has(path)
            namespace = lake._identifier(path).namespace()
            assert not lake._catalog.namespaceExists(namespace), "it was dropped again"
            lake.close()

            elsewhere = catalog.options | {
                "s3.remote-signing-enabled": "false",
                **store.options(),
                "s3.endpoint": "http://127.0.0.1:1",
            }
            lake = IcebergLake(site.jvm.gateway, elsewhere)
            with pytest.raises(LakeNotWritable, match="write s3://"):
                lake.create(site.client.admin.table_info(path))
            assert not lake.has(path)
            lake.close()

            own = catalog.options | store.options() | {"s3.remote-signing-enabled": "false"}
            lake = IcebergLake(site.jvm.gateway, own)
            lake.create(site.client.admin.table_info(path))
            assert lake.has(path)
            lake.close()


def test_options_that_contradict_the_catalog_are_refused_before_a_table_is_made(
    store: IamS3, tmp_path: Path
) -> None:
    """The catalog's win in Iceberg's client, the user's in pyarrow: each would write elsewhere."""
    with (
        IamS3() as other,
        rest_server(store, RestSettings(vending=Vending.CONFIG)) as server,
        round_site(Catalog(server.options, jars_with_s3()), tmp_path) as site,
    ):
        path = numbers_table(site)
        fill(site, path, 0, 5)
        lake = IcebergLake(site.jvm.gateway, server.options | other.options())
        told = r"^read s3://.* by Iceberg's own client: .*, datalake\.iceberg\.s3\.endpoint, "
        with pytest.raises(LakeNotWritable, match=told):
            lake.create(site.client.admin.table_info(path))
        assert not lake.has(path)
        lake.close()
        left = other.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])
        assert [one["Key"] for one in left if "_sluice-check" in one["Key"]] == []


def test_a_store_that_lets_nobody_delete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        IamS3() as store,
        rest_server(store, RestSettings(vending=Vending.CONFIG)) as server,
        round_site(Catalog(server.options, jars_with_s3()), tmp_path) as site,
    ):
        path = numbers_table(site)
        fill(site, path, 0, 5)
        store.forbid("s3:DeleteObject")
        code, found = doctor(site)
        assert (code, found["write a table's files"][0]) == (0, True), found
        assert "refused to delete" in found["write a table's files"][1]
        assert site.tier(path).rows == 5
        kept = [text for text in caplog.messages if text.startswith("a file of a check stays")]
        assert len(kept) == 4, "each client's, at doctor's look and before the table was created"
        assert len(site.rows(path, "id")) == 5


def test_a_catalog_that_stages_no_tables(store: IamS3, tmp_path: Path) -> None:
    """The table is created first; if it cannot be written, the error says that it is there."""
    with rest_server(store, RestSettings(vending=Vending.CONFIG, stages=False)) as server:
        catalog = Catalog(server.options, jars_with_s3())
        with round_site(catalog, tmp_path) as site:
            path = numbers_table(site)
            fill(site, path, 0, 5)
            code, found = doctor(site)
            ok, seen = found["write a table's files"]
            assert (code, ok) == (0, None)
            assert seen.startswith("the lake has no table yet; the catalog stages no tables: ")
            info = site.client.admin.table_info(path)
            many = {TablePath("shop", f"absent{place}"): info for place in range(50)}
            server.requests.clear()
            last = list(opened_lake_findings(site.config, site.jvm, many))[-1]
            assert last.seen.startswith("the lake has none of the first 20 of 50 tables; ")
            assert server.counts()[HAS_TABLE] == 20
            last = list(opened_lake_findings(site.config, site.jvm, None))[-1]
            assert last.seen == "the cluster does not tell which tables have tiering enabled"
            wrong = catalog.options | {"s3.endpoint": "http://127.0.0.1:1"}
            lake = IcebergLake(site.jvm.gateway, wrong)
            with pytest.raises(LakeNotWritable, match=r"write s3://.*exists now, without rows"):
                lake.create(site.client.admin.table_info(path))
            assert lake.has(path)
            lake.close()
            other = numbers_table(site)
            wrong = catalog.options | {"s3.acl": "everybody"}
            lake = IcebergLake(site.jvm.gateway, wrong)
            with pytest.raises(ConfigurationError, match=r"s3.acl.*exists now, without rows"):
                lake.create(site.client.admin.table_info(other))
            lake.close()
            assert site.tier(path).rows == 5
            assert len(site.rows(path, "id")) == 5
