"""What must not be seen, in all the forms in which it comes."""

from __future__ import annotations

import logging
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.masking import (
    REASON_CHARS_MAX,
    TEXT_CHARS_MAX,
    MaskingFormatter,
    holds_secret,
    is_secret_name,
    know,
    mask,
    reason_text,
    secrets_of,
)
from sluice.masking.forms import _MASKS, _NEEDED
from sluice.model import Reason
from sluice.model.reason import WITHHELD

PLANTED = "zQ9hunter2x"
"""In the cases below: what must be gone."""

MASKED = [
    # names and values
    "password=zQ9hunter2x next",
    "Password: zQ9hunter2x",
    "pwd=zQ9hunter2x;",
    "passphrase = zQ9hunter2x",
    "s3.secret-access-key: 'a zQ9hunter2x c', x",
    '{"token": "zQ9hunter2x.def", "n": 1}',
    '{"password": "quote \\" zQ9hunter2x"}',
    '"{\\"password\\": \\"zQ9hunter2x\\"}"',
    "{'client.fs.s3.access-key': 'zQ9hunter2x'}",
    "{s3.secret-access-key=zQ9hunter2x, warehouse=s3://b/w}",
    "fs.s3a.access.key=zQ9hunter2x; y",
    "fs.azure.account.key.acc.dfs.core.windows.net -> zQ9hunter2x",
    "spark.sluice.client.password=zQ9hunter2x",
    "SLUICE_CLIENT_PASSWORD=zQ9hunter2x",
    "AWS_SESSION_TOKEN: zQ9hunter2x",
    "api_key=zQ9hunter2x",
    "private-key=zQ9hunter2x",
    "secret key: zQ9hunter2x",
    "the credentials => zQ9hunter2x",
    'jaas required username="a" password="zQ9hunter2x c";',
    "sasl.jaas.config=zQ9hunter2x",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=zQ9hunter2x==;EndpointSuffix=e",
    "SharedAccessSignature=zQ9hunter2x",
    "password=" + "x" * 9_000 + "zQ9hunter2x",
    "x" * 9_000 + ".password=zQ9hunter2x",
    "-----BEGIN PRIVATE KEY-----\n" + "x" * 17_000 + "zQ9hunter2x",
    "-----BEGIN PRIVATE KEY-----\nzQ9hunter2x\n-----BEGIN PRIVATE KEY-----\nzQ9hunter2x",
    "password->zQ9hunter2x",
    '"password": "' + "x" * 9_000 + 'zQ9hunter2x"',
    '"password": "cut off in zQ9hunter2x',
    "Bearer " + "x" * 9_000 + "zQ9hunter2x",
    # on command lines
    "spark-submit --password zQ9hunter2x app.py",
    "curl --auth-token=zQ9hunter2x",
    "tool -secret 'zQ9hunter2x'",
    # in addresses
    "jdbc:postgresql://bob:zQ9hunter2x@db/x",
    "jdbc:mysql://db/x?user=bob&password=zQ9hunter2x",
    "jdbc:oracle:thin:bob/zQ9hunter2x@db:1521",
    "https://:zQ9hunter2x@host/",
    "redis://bob:zQ9hunter2x@host:1",
    "s3://AKID:zQ9/hunter2x/zQ9hunter2x@bucket/key",
    "s3a://AKID:zQ9hunter2x@bucket/key",
    "GET https://b.s3/x?X-Amz-Credential=zQ9hunter2x&X-Amz-Signature=b failed",
    "https://b.s3/x?X-Amz-Signature=zQ9hunter2x",
    "https://acc.blob/x?sv=1&sig=zQ9hunter2x%3D",
    "https://host/x?access_token=zQ9hunter2x#top",
    "https://host/x?key=zQ9hunter2x",
    "sv=2020&sig=zQ9hunter2x",
    # in headers
    "Authorization: Bearer zQ9hunter2x.ijkl",
    "authorization: Basic zQ9hunter2x==",
    "AWS4-HMAC-SHA256 Credential=zQ9hunter2x/2026/x, SignedHeaders=host, Signature=abc",
    "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=zQ9hunter2x",
    "Authorization: zQ9hunter2x",
    "{'Authorization': 'zQ9hunter2x'}",
    "Cookie: session=zQ9hunter2x; path=/",
    # said in words
    "password 'zQ9hunter2x' is wrong",
    'client.secret "a zQ9hunter2x" was refused',
    "pass=zQ9hunter2x&user=a",
    "auth=zQ9hunter2x",
    "https://h/x%3Fpassword%3DzQ9hunter2x",
    "https://zQ9hunter2x@host/repo",
    # in XML
    "<property><name>fs.s3a.secret.key</name><value>zQ9hunter2x</value></property>",
    "<Error><SignatureProvided>zQ9hunter2x</SignatureProvided></Error>",
    "<SessionToken>zQ9hunter2x</SessionToken>",
    # by their own form
    "eyJhbGciOiJIUzI1NiJ9.zQ9hunter2x.abc",
    "ghp_zQ9hunter2x",
    "-----BEGIN RSA PRIVATE KEY-----\nzQ9hunter2x\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nzQ9hunter2x, and here the text was cut",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIa-----BEGIN\nzQ9hunter2x\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nM-----BEGIN RSA-----\nzQ9hunter2x\n-----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", MASKED)
def test_secrets_are_masked(text: str) -> None:
    shown = mask(text)
    assert PLANTED not in shown
    assert "***" in shown
    assert mask(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=a next", "password=*** next"),
        ('{"token": "abc.def", "n": 1}', '{"token": ***, "n": 1}'),
        ("jdbc:postgresql://bob:pw@db/x", "jdbc:postgresql://***@db/x"),
        ("s3a://AK:a/b@bucket/x: denied", "s3a://***@bucket/x: denied"),
        ("key AKIAABCDEFGHIJKLMNOP used", "key *** used"),
        ("GET https://b.s3/x?X-Amz-Signature=b failed", "GET https://b.s3/x?*** failed"),
        ("<name>a.token</name><value>b</value>", "<name>a.token</name><value>***</value>"),
        ("--password b --verbose", "--password *** --verbose"),
    ],
)
def test_what_is_around_a_secret_stays(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "nothing to hide: https://host/path?page=2",
        "table db.token_counts does not exist",
        "no such key: id=5 of primary key (id)",
        "abfss://container@account.dfs.core.windows.net/x",
        "cannot reach grpc://127.0.0.1:9123: connection refused",
        "s3://bucket/a/b.parquet: 403 Forbidden",
        "fluss://host:9124?tablet=9125",
        "offset 5 of bucket 3:0; expected 7",
        "unexpected token 'FROM'",
        "hdfs://bob@namenode/x",
        "tests pass: 5 of 5, author=bob",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("s3://AK:a/b@bucket/x", ("AK:a/b", "a/b")),
        ("jdbc:postgresql://bob:p%2Fw@db/x", ("bob:p%2Fw", "p%2Fw", "bob:p/w", "p/w")),
        ("jdbc:mysql://db/x?user=bob&password=pw", ("pw",)),
        ("jdbc:sqlserver://db;user=bob;password=pw", ("pw",)),
        ("jdbc:oracle:thin:bob/pw@db:1521", ("bob/pw", "pw")),
        ("hdfs://bob:pw@h:1/x", ("bob:pw", "pw")),
        ("s3://bucket/x@y", ()),
        ("/srv/a:b@c", ()),
    ],
)
def test_an_address_tells_its_password(uri: str, found: tuple[str, ...]) -> None:
    assert secrets_of(uri) == found


def test_known_values_are_masked_in_every_form() -> None:
    secret = 'p/a "w'
    text = f'raw {secret}, quoted p%2Fa%20%22w, json p/a \\"w'
    assert mask(text, [secret, "x"]) == "raw ***, quoted ***, json ***"
    assert mask("abcdef abc", ["abcd", "abcdef"]) == "*** abc"


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.text(st.characters(exclude_characters="\"'\\<"), max_size=300), st.sampled_from(MASKED))
def test_a_secret_is_found_wherever_it_stands(noise: str, secret: str) -> None:
    assert PLANTED not in mask(f"{noise} {secret}")


UNITS = [
    *("a.", "password", "x://a:", "<name>", "\\", "token '", "pwd.", "-pwd", "--pwd ", "keypwd-"),
    *("a://a?", "?s3://a:", "eyJaaaaaaaa-", "-----BEGIN PRIVATE KEY-----", 'pwd=\\"'),
]


def cpu_s(unit: str) -> float:
    """What the masking of the longest text made of a unit costs."""
    text = (unit * TEXT_CHARS_MAX)[:TEXT_CHARS_MAX]
    begun = time.process_time()
    mask(text)
    return time.process_time() - begun


def test_what_any_pattern_needs_is_searched_first() -> None:
    for needed, _, _ in _MASKS:
        assert all(any(part in one for part in _NEEDED) for one in needed), needed


def test_no_text_costs_much_more_than_an_ordinary_one() -> None:
    """The earlier patterns needed about a hundred times as long for the worst of these.

    An ordinary text has words and addresses for which each pattern is tried.
    """
    most_s = 15 * cpu_s("table shop.orders: no secret key, token https://host/x; ")
    slow = [unit for unit in UNITS if cpu_s(unit) > most_s]
    assert [unit for unit in slow if cpu_s(unit) > most_s] == []


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("s3.secret-access-key", True),
        ("s3.access-key-id", True),
        ("header.X-Auth", True),
        ("datalake.iceberg.header.Authorization", True),
        ("SLUICE_DATALAKE_ICEBERG_HEADER__X_AUTH", True),
        ("header.X-Iceberg-Access-Delegation", False),
        ("datalake.iceberg.header.X-Iceberg-Access-Delegation", False),
        ("tableheader.x", False),
        ("fs.s3a.access.key", True),
        ("adls.sas-token.account", True),
        ("warehouse", False),
        ("uri", False),
        ("s3.endpoint", False),
        ("type", False),
        ("s3.sse.key", True),
        ("s3.sse.type", False),
        ("gcs.service-account.key-json", True),
    ],
)
def test_names_of_secret_options(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_a_reason_is_masked_and_then_cut_between_characters() -> None:
    assert reason_text("ü" * 9_000) == "ü" * (REASON_CHARS_MAX - 1) + "…"
    assert reason_text("🦦" * REASON_CHARS_MAX) == "🦦" * REASON_CHARS_MAX
    edge = "x" * (REASON_CHARS_MAX - 12) + " password=zQ9hunter2x"
    assert "zQ9" not in reason_text(edge)
    assert reason_text("file \udcff") == "file ?"


PIECES = [
    *MASKED,
    *("password", "secret: ", "'a'", '"', "token=", "auth=", "pass=", "***", "…", " ", "\n", "\\"),
    *("-----BEGIN RSA PRIVATE KEY-----", "-----END", "s3://a:b", "@", "https://h/p?", "sig="),
    *("Bearer ", "<name>a.token</name><value>", "<Signature>", "--token ", "eyJ", "x" * 1000),
    "planted-value",
]
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=12).map("".join)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(texts, st.none() | st.integers(-40, 1), texts)
def test_a_reason_that_was_made_passes_its_check(start: str, beyond: int | None, end: str) -> None:
    """Also where the cut goes through a secret or its mask, and where masks stand side by side."""
    hidden = ["planted-value"]
    at_the_cut = "" if beyond is None else "." * (REASON_CHARS_MAX + beyond - len(start))
    text = start + at_the_cut + end
    reason = Reason.from_text(text, hidden, kind="ExpiredTokenException", deepest_cause=end)
    assert reason.checked(hidden) is reason
    outer = reason.caused("SplitFailed", "bucket 0 of table shop.tokens")
    assert outer.checked(hidden) is outer


@pytest.mark.parametrize("text", MASKED)
def test_a_reason_made_around_the_factory_is_withheld(text: str) -> None:
    assert holds_secret(text)
    for texts_of in (("E", text), ("E", "", text), (text, "")):
        assert Reason(*texts_of).checked() == Reason("", WITHHELD)
    assert not holds_secret(WITHHELD)


def test_a_known_value_is_withheld() -> None:
    reason = Reason("E", "login of planted-value refused")
    assert reason.checked(["other-value"]) is reason
    assert reason.checked(["planted-value"]).text == WITHHELD


def test_log_lines_and_their_tracebacks_are_masked() -> None:
    formatter = MaskingFormatter("%(levelname)s %(message)s")
    know(["planted-value"])
    try:
        raise ValueError("token=abc of planted-value")
    except ValueError:
        record = logging.LogRecord(
            "a", logging.ERROR, "f", 1, "login %s", ("password=b",), sys.exc_info()
        )
    shown = formatter.format(record)
    assert shown.startswith("ERROR login password=***\n  Traceback")
    assert shown.endswith("ValueError: token=*** of ***")
