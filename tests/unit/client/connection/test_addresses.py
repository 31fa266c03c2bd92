"""Addresses in, targets out; what is wrong with one is said with the address."""

from __future__ import annotations

import pytest

from sluice.client.connection.addresses import Address, parse_bootstrap
from sluice.client.leases.ids import OWNER_CHARS_MAX, lease_id
from sluice.errors import ConfigurationError
from sluice.leases.limits import check_lease_id
from tests.docs.blocks import claimed_blocks


def test_parses_host_and_port() -> None:
    assert Address.parse("grpc://fluss.example:9123") == Address("grpc", "fluss.example", 9123)
    assert Address.parse("grpc://[::1]:9123").target == "[::1]:9123"
    assert str(Address.parse("grpc://[::1]:9123")) == "grpc://[::1]:9123"
    assert Address.parse("fluss://fluss.example:9123").scheme == "fluss"


BOTH = "grpc://localhost:9123 (Sluice's server) or fluss://localhost:9123 (Apache Fluss)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("localhost:9123", f": the scheme is missing: write {BOTH}"),
        ("localhost", f": the scheme is missing: write {BOTH}"),
        ("http://localhost:9123", f": unknown scheme 'http'; did you mean {BOTH}?"),
        ("flus://localhost:9123", "'flus'; did you mean fluss://localhost:9123?"),
        ("fluss:/localhost:9123", ": a slash is missing: write fluss://localhost:9123"),
        ("grpc:localhost:9123", ": two slashes are missing: write grpc://localhost:9123"),
        ("grpc://localhost", " has no port: write grpc://localhost:9123"),
        ("grpc://[::1]", " has no port: write grpc://[::1]:9123"),
        ("grpc://localhost:", " has no port: write grpc://localhost:9123"),
        ("grpc://:9123", " has no host: write grpc://HOST:PORT"),
        ("grpc://localhost:99999", ": the port is a number from 1 to 65535, not '99999'"),
        ("grpc://localhost:http", ": the port is a number from 1 to 65535, not 'http'"),
        ("grpc://localhost:0", ": the port is a number from 1 to 65535, not '0'"),
        ("grpc://localhost:9123/db", " has text after the port: write grpc://localhost:9123"),
        ("grpc://[::1:9123", ": Invalid IPv6 URL; write grpc://HOST:PORT"),
        ("", ": it is empty: write grpc://HOST:PORT or fluss://HOST:PORT"),
    ],
)
def test_a_malformed_address_is_refused_with_what_was_meant(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(text)
    message = str(caught.value)
    assert message.startswith(f"address {text!r}")
    assert told in message


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"has a login: .*client\.password") as caught:
        Address.parse("fluss://ann:planted-4711@host:9123")
    assert "planted-4711" not in str(caught.value)


def test_a_cluster_may_have_several_addresses_of_one_scheme() -> None:
    one, two = Address("fluss", "a", 1), Address("fluss", "b", 2)
    assert parse_bootstrap("fluss://a:1") == (one,)
    assert parse_bootstrap("fluss://a:1, b:2,fluss://b:2") == (one, two)
    with pytest.raises(ConfigurationError, match="are reached by one scheme"):
        parse_bootstrap("fluss://a:1,grpc://b:2")
    with pytest.raises(ConfigurationError, match="one between the commas is empty"):
        parse_bootstrap("fluss://a:1,")


def test_a_server_without_a_host_of_its_own_is_where_the_bootstrap_is() -> None:
    bootstrap = Address.parse("grpc://sluice:9123")
    assert bootstrap.at("tablet-1", 9124) == Address("grpc", "tablet-1", 9124)
    assert bootstrap.at("0.0.0.0", 9124) == Address("grpc", "sluice", 9124)
    assert bootstrap.at("", 9124) == Address("grpc", "sluice", 9124)


def test_a_lease_id_is_the_same_for_every_try_and_no_other_run() -> None:
    mine = lease_id("prod", "tiering", "scheduled__2026-01-01")
    assert mine == lease_id("prod", "tiering", "scheduled__2026-01-01")
    assert mine.startswith("sluice-prod-")
    assert len(mine) == len("sluice-prod-") + 36
    others = [("test", "tiering", "scheduled__2026-01-01"), ("prod", "tieringscheduled", "")]
    assert mine not in {lease_id(*names) for names in others}
    assert lease_id("a", "bc", "d") != lease_id("ab", "c", "d")


def test_a_lease_id_has_only_characters_of_a_lease_id_and_a_folder() -> None:
    one, other = (lease_id(f"/Wüste {n} {'x' * 200}", "c", "d") for n in (1, 2))
    assert one.startswith("sluice--W-ste-1-xxx")
    assert len(one) == len("sluice-") + OWNER_CHARS_MAX + 1 + 36
    check_lease_id(one)
    assert one != other


def test_a_lease_id_stays_what_it_is_across_versions() -> None:
    assert lease_id("a", "b", "c") == "sluice-a-c6ef648e-97e3-5f2e-95d1-8912a7000d46"


def test_a_lease_id_looks_as_the_page_shows() -> None:
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    run_id = "scheduled__2026-11-23T08:00:00+00:00"
    made = lease_id("airflow-3f9c2a1b7d40", "sluice_lake_tiering", run_id)
    assert shown.content.strip() == made
