"""Addresses in, targets out; what is wrong with one is said with the address."""

from __future__ import annotations

import pytest

from sluice.client.addresses import Address, parse_bootstrap
from sluice.client.lease_ids import lease_id
from sluice.errors import ConfigurationError


def test_parses_host_and_port() -> None:
    assert Address.parse("grpc://fluss.example:9123") == Address("grpc", "fluss.example", 9123)
    assert Address.parse("grpc://[::1]:9123").target == "[::1]:9123"
    assert str(Address.parse("grpc://[::1]:9123")) == "grpc://[::1]:9123"
    assert Address.parse("fluss://fluss.example:9123").scheme == "fluss"


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9123",
        "grpc://localhost",
        "grpc://:9123",
        "grpc://localhost:99999",
        "grpc://localhost:http",
        "grpc://localhost:0",
        "grpc://localhost:9123/db",
        "http://localhost:9123",
        "grpc://a:1,grpc://b:2",
        "",
    ],
)
def test_anything_else_is_refused_with_the_form_that_is_right(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write grpc://HOST:PORT") as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)


def test_a_cluster_may_have_several_addresses_of_one_scheme() -> None:
    one, two = Address("fluss", "a", 1), Address("fluss", "b", 2)
    assert parse_bootstrap("fluss://a:1") == (one,)
    assert parse_bootstrap("fluss://a:1, b:2,fluss://b:2") == (one, two)
    with pytest.raises(ConfigurationError, match="one cluster is reached by one scheme"):
        parse_bootstrap("fluss://a:1,grpc://b:2")
    with pytest.raises(ConfigurationError, match=r"'fluss://': write grpc://HOST:PORT or fluss://"):
        parse_bootstrap("fluss://a:1,")


def test_a_server_without_a_host_of_its_own_is_where_the_bootstrap_is() -> None:
    bootstrap = Address.parse("grpc://sluice:9123")
    assert bootstrap.at("tablet-1", 9124) == Address("grpc", "tablet-1", 9124)
    assert bootstrap.at("0.0.0.0", 9124) == Address("grpc", "sluice", 9124)
    assert bootstrap.at("", 9124) == Address("grpc", "sluice", 9124)


def test_a_lease_id_is_the_same_for_every_try_and_no_other_run() -> None:
    mine = lease_id("prod", "tiering", "scheduled__2026-01-01")
    assert mine == lease_id("prod", "tiering", "scheduled__2026-01-01")
    assert mine.startswith("sluice-")
    assert len(mine) == len("sluice-") + 36
    others = [("test", "tiering", "scheduled__2026-01-01"), ("prod", "tieringscheduled", "")]
    assert mine not in {lease_id(*names) for names in others}
    assert lease_id("a", "bc", "d") != lease_id("ab", "c", "d")


def test_a_lease_id_stays_what_it_is_across_versions() -> None:
    assert lease_id("a", "b", "c") == "sluice-c6ef648e-97e3-5f2e-95d1-8912a7000d46"
