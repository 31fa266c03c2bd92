"""The limits of leases: ids, durations and numbers of buckets."""

from __future__ import annotations

import re

from sluice.errors import AuthorizationError, InvalidLease
from sluice.model import Caller

_LEASE_ID = re.compile(r"[A-Za-z0-9._:-]{1,200}")

DURATION_MIN_MS = 1_000
"""Minimum duration; shorter leases would end before a client can renew them."""
DURATION_MAX_MS = 30 * 24 * 60 * 60 * 1000
"""Maximum duration, and so the longest time that an abandoned lease keeps files."""
BUCKETS_PER_CALL_MAX = 200_000
"""Maximum number of buckets in one acquire or release."""
LEASES_MAX = 10_000
"""Maximum number of leases."""
HELD_MAX = 2_000_000
"""Maximum number of buckets in all leases; about 300 bytes of memory each."""
USER_SHARE = 2
"""With a users file, one user has at most the limits of all leases divided by this."""
ROUNDS_PREFIX = "sluice-"
"""How the lease ids of rounds begin. Most of them can be guessed, as a retry must find its own."""
RESTART_GRACE_MS = 10 * 60 * 1000
"""No lease expires for this long after a start, as none could be renewed before it."""


def check_lease_id(lease_id: str) -> None:
    """:raises InvalidLease: unless 1 to 200 letters, digits, ``.``, ``_``, ``:`` and ``-``."""
    if not _LEASE_ID.fullmatch(lease_id):
        shown = lease_id if len(lease_id) <= 80 else f"{lease_id[:80]}... ({len(lease_id)} long)"
        raise InvalidLease(
            f"lease id {shown!r}: use 1 to 200 letters, digits, '.', '_', ':' and '-'"
        )


def check_may_make(lease_id: str, by: Caller) -> None:
    """Keeps the ids of rounds for those who may tier; else a reader could take one in advance.

    :raises AuthorizationError: the id is one of a round's, and the caller lacks the role write.
    """
    if lease_id.startswith(ROUNDS_PREFIX) and not by.may_write:
        raise AuthorizationError(
            f"lease {lease_id}: ids that begin with {ROUNDS_PREFIX} are for rounds, which need the"
            " role write: use another lease id, or a token of a user with the role write"
        )


def check_duration(lease_id: str, duration_ms: int) -> None:
    """:raises InvalidLease: shorter than a second, or longer than 30 days."""
    if not DURATION_MIN_MS <= duration_ms <= DURATION_MAX_MS:
        raise InvalidLease(
            f"lease {lease_id}: invalid duration {duration_ms} ms: use {DURATION_MIN_MS} to"
            f" {DURATION_MAX_MS} ms (30 days), and renew the lease while it is needed"
        )


def check_buckets_per_call(lease_id: str, buckets: int) -> None:
    """:raises InvalidLease: more than one call may name."""
    if buckets > BUCKETS_PER_CALL_MAX:
        raise InvalidLease(
            f"lease {lease_id}: {buckets} buckets in one call exceed the limit of"
            f" {BUCKETS_PER_CALL_MAX}: use several calls with the same lease id"
        )


def check_totals(lease_id: str, leases: int, held: int) -> None:
    """:raises InvalidLease: more leases, or more held buckets, than the coordinator keeps."""
    if leases > LEASES_MAX:
        raise InvalidLease(
            f"lease {lease_id}: the limit of {LEASES_MAX} leases is reached: drop some"
            " (`sluice leases`)"
        )
    if held > HELD_MAX:
        raise InvalidLease(
            f"lease {lease_id}: all leases together would have {held} buckets, more than the limit"
            f" of {HELD_MAX}: drop some (`sluice leases`)"
        )


def check_share(lease_id: str, owner: str, leases: int, held: int) -> None:
    """:raises InvalidLease: more leases, or more held buckets, than one user may have."""
    for count, limit, what in (
        (leases, LEASES_MAX // USER_SHARE, "leases"),
        (held, HELD_MAX // USER_SHARE, "buckets in leases"),
    ):
        if count > limit:
            raise InvalidLease(
                f"lease {lease_id}: user {owner!r} would have {count} {what}, more than one user's"
                f" limit of {limit}: drop some (`sluice leases`)"
            )
