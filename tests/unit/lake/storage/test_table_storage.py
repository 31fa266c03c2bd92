"""Which options serve a file: those of the catalog, by the longest prefix, below the user's own."""

from __future__ import annotations

import json
import pickle

import pytest

from sluice.lake.storage.table_storage import PrefixOptions, TableStorage

READ_MS = 1_000_000
VENDED = {
    "s3.access-key-id": "vended",
    "s3.secret-access-key": "vended-secret",
    "s3.session-token": "vended-token",
    "s3.session-token-expires-at-ms": "1060000",
}
OWN = {"s3.access-key-id": "own", "s3.secret-access-key": "own-secret"}


def storage(
    file_io: dict[str, str],
    credentials: dict[str, dict[str, str]] | None = None,
    user: dict[str, str] | None = None,
) -> TableStorage:
    return TableStorage.of(file_io, credentials or {}, user or {}, "s3://lake/t", READ_MS)


def test_what_the_catalog_says_serves_all_files() -> None:
    found = storage({"s3.endpoint": "http://store", "token": "login", **VENDED})
    assert found.options_for("s3://lake/t/f") == {"s3.endpoint": "http://store", **VENDED}
    assert (found.expires_ms, found.renew_ms) == (1_060_000, 1_045_000)


def test_the_longest_prefix_has_the_keys() -> None:
    wide = {"s3.access-key-id": "wide", "s3.secret-access-key": "w"}
    deep = {"s3.access-key-id": "deep", "s3.secret-access-key": "d"}
    found = storage(
        {"s3.endpoint": "http://store", **VENDED},
        {"s3://lake": wide, "s3://lake/t/data": deep},
    )
    keys = {
        place: found.options_for(place).get("s3.access-key-id")
        for place in ("s3://lake/t/data/f", "s3://lake/t/metadata/f", "s3://other/f", "gs://x/f")
    }
    assert [*keys.values()] == ["deep", "wide", "vended", "vended"]
    assert found.options_for("s3://lake/t/data/f")["s3.endpoint"] == "http://store"
    # the session token belongs to other keys: a store would refuse the mixture
    assert "s3.session-token" not in found.options_for("s3://lake/t/data/f")


def test_the_user_overrides_the_catalog_and_keys_are_never_mixed() -> None:
    found = storage(
        {"s3.endpoint": "http://inside", "client.region": "r1", **VENDED},
        {"s3://lake": {**VENDED, "s3.access-key-id": "for a prefix"}},
        {"s3.endpoint": "http://outside", **OWN, "uri": "http://catalog", "token": "login"},
    )
    options = found.options_for("s3://lake/f")
    assert options == {"s3.endpoint": "http://outside", "client.region": "r1", **OWN}
    assert found.expires_ms is None, "the user's keys do not end"
    assert found.renew_ms == float("inf")


@pytest.mark.parametrize("prefix", ["fs.s3a.", "hadoop.fs.s3a.", "fs.s3a.bucket.lake."])
def test_keys_by_hadoops_names_are_not_mixed_either(prefix: str) -> None:
    own = {f"{prefix}access.key": "own", f"{prefix}secret.key": "own-secret"}
    found = storage(VENDED, user=own)
    assert found.options_for("s3://lake/f") == own
    assert found.expires_ms is None
    of_spark = {f"{prefix}session.token": "of Spark", **own}
    assert storage(of_spark, {"s3://lake": VENDED}).options_for("s3://lake/f") == VENDED
    assert storage(of_spark, user=OWN).options_for("s3://lake/f") == OWN


def test_a_prefix_without_an_account() -> None:
    of_azure = {"adls.sas-token.a": "sig=1", "adls.sas-token-expires-at-ms.a": "1030000"}
    assert storage({}, {"abfss://": of_azure}).expires_ms == 1_030_000


def test_a_token_without_an_end_is_not_trusted_for_ever() -> None:
    token = {name: value for name, value in VENDED.items() if "expires" not in name}
    assert storage(token).expires_ms == READ_MS + 900_000
    assert storage(token, user=token).expires_ms is None, "the user has set it: nobody renews it"


def test_the_first_end_of_all_keys_counts() -> None:
    of_azure = {"adls.sas-token.a": "sig=1", "adls.sas-token-expires-at-ms.a": "1030000"}
    of_google = {"gcs.oauth2.token": "ya29.x", "gcs.oauth2.token-expires-at": "1040000"}
    found = storage(VENDED, {"abfss://c@a.dfs.core.windows.net/t": of_azure, "gs://b/t": of_google})
    assert found.expires_ms == 1_030_000


def test_a_wrong_clock_does_not_ask_for_keys_all_the_time() -> None:
    ended = {**VENDED, "s3.session-token-expires-at-ms": "5"}
    assert storage(ended).renew_ms == READ_MS + 5_000


def test_it_travels_to_executors_and_through_files() -> None:
    found = storage(VENDED, {"s3://lake": {**VENDED, "s3.access-key-id": "other"}})
    assert pickle.loads(pickle.dumps(found)) == found
    assert TableStorage.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_its_text_has_no_secret() -> None:
    found = storage(VENDED, {"s3://lake": VENDED})
    assert "vended" not in repr(found)
    assert {"vended-secret", "vended-token"} <= {*found.secrets()}


def test_a_table_without_a_catalogs_word() -> None:
    found = TableStorage.of({}, {}, {"warehouse": "s3://lake", "uri": "x", **OWN}, "s3://lake/t", 0)
    assert found == TableStorage((PrefixOptions("", OWN),))
    assert TableStorage().options_for("s3://lake/f") == {}
