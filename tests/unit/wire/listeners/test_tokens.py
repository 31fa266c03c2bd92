"""The users file: what it says, what is wrong with it, and that a change counts at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sluice.errors import AuthenticateError, AuthorizationError, ConfigurationError
from sluice.wire import apis
from sluice.wire.listeners.access import Access
from sluice.wire.listeners.tokens import TOKENS_MAX, UsersFile
from tests.support.network.users import TOKENS, line, write_text, write_users


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_users(tmp_path / "users")


def test_a_token_and_a_login_name_the_same_user(file: Path) -> None:
    tokens = UsersFile(file)
    for name, (role, token) in TOKENS.items():
        user = tokens.of_token(token)
        assert (user.name, user.access.role) == (name, role)
        assert tokens.of_login(name, token) == user
        assert token not in repr(user)
        assert user.digest.hex() not in repr(user)


@pytest.mark.parametrize("token", ["", "guessed", "read-token-6b1", "read-token-6b1f "])
def test_a_wrong_token_is_nobodys(file: Path, token: str) -> None:
    with pytest.raises(AuthenticateError, match=r"the token is wrong .*client\.token") as caught:
        UsersFile(file).of_token(token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "password"),
    [("ria", "guessed"), ("ria", TOKENS["ada"][1]), ("nobody", TOKENS["ria"][1]), ("", "")],
)
def test_a_wrong_login_does_not_say_what_is_wrong(file: Path, name: str, password: str) -> None:
    with pytest.raises(AuthenticateError) as caught:
        UsersFile(file).of_login(name, password)
    assert str(caught.value).startswith("user or password is wrong")
    assert not password or password not in str(caught.value)


def test_the_digest_is_no_token(file: Path) -> None:
    digest = hashlib.sha256(TOKENS["ada"][1].encode()).hexdigest()
    with pytest.raises(AuthenticateError):
        UsersFile(file).of_token(digest)


def test_what_a_role_allows(file: Path) -> None:
    tokens = UsersFile(file)
    wim = tokens.of_token(TOKENS["wim"][1])
    tokens.allow(wim, apis.FETCH_LOG)
    tokens.allow(wim, apis.PRODUCE_LOG)
    with pytest.raises(AuthorizationError, match="CreateTable needs the role admin; 'wim' has the"):
        tokens.allow(wim, apis.CREATE_TABLE)


def test_a_changed_file_counts_at_once(file: Path) -> None:
    tokens = UsersFile(file)
    wim, ria = (tokens.of_token(TOKENS[name][1]) for name in ("wim", "ria"))
    write_users(file, {"wim": ("read", TOKENS["wim"][1]), "new": ("admin", "brand-new")})
    assert tokens.of_token("brand-new").access is Access.ADMIN
    tokens.allow(wim, apis.FETCH_LOG)
    with pytest.raises(AuthorizationError, match="the role read"):
        tokens.allow(wim, apis.PRODUCE_LOG)
    with pytest.raises(AuthenticateError, match="'ria' was withdrawn"):
        tokens.allow(ria, apis.FETCH_LOG)


def test_a_token_that_is_another_users_by_now_is_withdrawn_from_the_first(file: Path) -> None:
    tokens = UsersFile(file)
    ria = tokens.of_token(TOKENS["ria"][1])
    write_users(file, {"eve": ("admin", TOKENS["ria"][1])})
    with pytest.raises(AuthenticateError, match="'ria' was withdrawn"):
        tokens.allow(ria, apis.FETCH_LOG)


def test_a_user_may_have_two_tokens_while_one_goes(file: Path) -> None:
    write_text(file, line("ria", "read", "old") + line("ria", "write", "new"))
    tokens = UsersFile(file)
    assert tokens.of_login("ria", "old").access is Access.READ
    assert tokens.of_login("ria", "new").access is Access.WRITE


@pytest.mark.parametrize("text", ["", "ria read\n", "\0\xff"])
def test_a_file_that_is_wrong_or_gone_changes_nothing(file: Path, text: str) -> None:
    tokens = UsersFile(file)
    write_text(file, text)
    assert tokens.of_token(TOKENS["ria"][1]).name == "ria"
    file.unlink()
    assert tokens.of_token(TOKENS["ria"][1]).name == "ria"
    write_users(file, {"new": ("read", "brand-new")})
    assert tokens.of_token("brand-new").name == "new"
    with pytest.raises(AuthenticateError):
        tokens.of_token(TOKENS["ria"][1])


def test_comments_and_blanks(file: Path) -> None:
    good = line("ria", "read", "t").strip()
    write_text(file, f"# who may read\n\n  {good.upper().replace('READ', 'read')}   # Ria\n")
    assert UsersFile(file).of_token("t").name == "RIA"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no users"),
        ("# nobody\n", "it has no users"),
        (line("a", "read", "t") + "b read\n", "line 2: 2 words"),
        ("b owner " + "0" * 64, "line 1: the second word is not a role"),
        ("b read t0p-s3cret", "line 1: the third word is not a SHA-256"),
        ("b read " + "0" * 63, "is not a SHA-256"),
        (line("a", "read", "t") + line("b", "read", "t"), "line 2: an earlier line has this token"),
        ("".join(line("a", "read", str(n)) for n in range(TOKENS_MAX + 1)), "1,001 users"),
        ("#" * (1 << 20) + "\n", "more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_with_a_file(file: Path, text: str, why: str) -> None:
    write_text(file, text)
    with pytest.raises(ConfigurationError, match=why) as caught:
        UsersFile(file)
    assert str(caught.value).startswith(f"server.users_file: {file}")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"users_file: .*none: No such file"):
        UsersFile(tmp_path / "none")
