"""Which addresses the server may be told to listen on."""

from __future__ import annotations

import pytest

from sluice.errors import ConfigurationError
from sluice.server.listen_addresses import ListenAddress, listen_addresses
from sluice.wire.apis import Role

C, T = Role.COORDINATOR, Role.TABLET


@pytest.mark.parametrize("scheme", ["grpc", "fluss"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "[::]", "example.org"])
def test_only_loopback_without_insecure(scheme: str, host: str) -> None:
    listen = f"grpc://127.0.0.1:1, {scheme}://{host}:9123"
    with pytest.raises(ConfigurationError, match="--insecure"):
        listen_addresses(listen, insecure=False)
    assert listen_addresses(listen, insecure=True)[1].ports[C] == 9123


@pytest.mark.parametrize(
    ("scheme", "tls", "tokens", "lacks"),
    [
        ("grpc", False, False, "TLS (--tls-certificate and --tls-key) and logins (--users-file):"),
        ("grpc", False, True, "TLS (--tls-certificate and --tls-key):"),
        ("grpc", True, False, "logins (--users-file):"),
        ("grpc", True, True, None),
        ("fluss", False, False, "logins (--users-file):"),
        ("fluss", False, True, None),  # Fluss's own protocol has no TLS
    ],
)
def test_what_an_open_address_lacks(
    scheme: str, tls: bool, tokens: bool, lacks: str | None
) -> None:
    listen = f"{scheme}://0.0.0.0:9123"
    if lacks is None:
        assert len(listen_addresses(listen, insecure=False, tls=tls, tokens=tokens)) == 1
        return
    with pytest.raises(ConfigurationError) as caught:
        listen_addresses(listen, insecure=False, tls=tls, tokens=tokens)
    reached = f"server.listen: {listen!r} can be reached from other machines"
    expected = f"{reached} but lacks {lacks} configure them"
    assert str(caught.value).startswith(expected)
    assert "--insecure" in str(caught.value)


def test_tls_that_no_address_can_have() -> None:
    with pytest.raises(ConfigurationError, match="has no grpc:// address, and the fluss://"):
        listen_addresses("fluss://127.0.0.1:9124", insecure=True, tls=True, tokens=True)
    both = "fluss://127.0.0.1:9124,grpc://127.0.0.1:9123"
    assert len(listen_addresses(both, insecure=False, tls=True)) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback_is_fine(host: str) -> None:
    (found,) = listen_addresses(f"grpc://{host}:0", insecure=False)
    assert found == ListenAddress("grpc", host.strip("[]"), {C: 0, T: 0})
    assert found.address(7) == f"grpc://{host}:7"


@pytest.mark.parametrize(
    ("listen", "ports"),
    [
        ("fluss://127.0.0.1:9124", (9124, 9125)),
        ("fluss://127.0.0.1:0", (0, 0)),
        ("fluss://127.0.0.1:9124?tablet=0", (9124, 0)),
        ("fluss://127.0.0.1:0?tablet=77", (0, 77)),
        ("fluss://127.0.0.1:9124?tablet=9200", (9124, 9200)),
    ],
)
def test_a_native_door_has_two_ports(listen: str, ports: tuple[int, int]) -> None:
    (found,) = listen_addresses(listen, insecure=False)
    assert (found.ports[C], found.ports[T]) == ports


def test_several_in_their_order() -> None:
    found = listen_addresses("fluss://localhost:5 ,grpc://[::1]:6", insecure=False)
    assert [place.address(place.ports[C]) for place in found] == [
        "fluss://localhost:5",
        "grpc://[::1]:6",
    ]


@pytest.mark.parametrize(
    "listen",
    [
        "",
        ",",
        "grpc://h:1,",
        "127.0.0.1:1",
        "grpc://127.0.0.1",
        "http://h:1",
        "grpc://:5",
        "grpc://h:1/x",
        "grpc://me@h:1",
        "grpc://h:1?tablet=2",
        "grpc://h:99999",
        "fluss://h:65535",
        "fluss://h:1?tablet=1",
        "fluss://h:1?tablet=x",
        "fluss://h:1?tablet=",
        "fluss://h:1?tablet=70000",
        "fluss://h:1?other=2",
    ],
)
def test_other_addresses_are_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"server\.listen"):
        listen_addresses(listen, insecure=True)


def test_clients_are_told_the_advertised_addresses_in_order() -> None:
    found = listen_addresses(
        "grpc://0.0.0.0:1,fluss://0.0.0.0:2,grpc://0.0.0.0:3",
        insecure=True,
        advertised="fluss://lake.example:20?tablet=0, grpc://lake.example:10",
    )
    assert [listener.client_address(C, 7) for listener in found] == [
        ("lake.example", 10),
        ("lake.example", 20),
        ("0.0.0.0", 7),
    ]
    assert found[1].client_address(T, 7) == ("lake.example", 7)


@pytest.mark.parametrize(
    ("advertised", "why"),
    [
        ("fluss://h:1", "matches no listener: server.listen has fewer fluss://"),
        ("grpc://h:1,grpc://h:2", "matches no listener: server.listen has fewer grpc://"),
        ("h:1", "expected grpc://HOST:PORT"),
    ],
)
def test_an_advertised_address_needs_a_listener(advertised: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"server\.advertised_listeners: .*{why}"):
        listen_addresses("grpc://127.0.0.1:1", insecure=False, advertised=advertised)
