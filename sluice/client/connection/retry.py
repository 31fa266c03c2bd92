"""When a call is sent again: a table of rules, a policy for the waits, and the loop.

Errors such as "not found" or "fenced" are never retried: the same request would fail again.
"""

from __future__ import annotations

import math
import random as random_module
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluice.errors import (
    DiskWriteLocked,
    FlussError,
    HistoricalPartitionThrottled,
    InvalidBucketRouting,
    KvStorageError,
    LeaderNotAvailable,
    LogStorageError,
    NetworkError,
    NotCoordinatorLeader,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimeOut,
    SchemaNotExist,
    StorageBackpressure,
    StorageError,
    UnknownTableOrBucket,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """How an error class is retried."""

    executed: bool
    """Whether the server may have done the work: then only an idempotent call is sent again."""
    attempts_max: float = math.inf
    """Most attempts that may end this way."""
    refresh: bool = False
    """Whether addresses and leaders are looked up again first."""


RULES: dict[type[FlussError], Rule] = {
    NetworkError: Rule(executed=True, refresh=True),
    RequestTimeOut: Rule(executed=True, refresh=True),
    # Refused before anything was done.
    NotLeaderOrFollower: Rule(executed=False, refresh=True),
    LeaderNotAvailable: Rule(executed=False, refresh=True),
    UnknownTableOrBucket: Rule(executed=False, refresh=True, attempts_max=10),
    NotCoordinatorLeader: Rule(executed=False, refresh=True),
    NotEnoughReplicas: Rule(executed=False),
    StorageBackpressure: Rule(executed=False),
    HistoricalPartitionThrottled: Rule(executed=False),
    DiskWriteLocked: Rule(executed=False),
    # A failed write may be stored in part; if it keeps failing, an operator must act.
    StorageError: Rule(executed=True, attempts_max=3),
    LogStorageError: Rule(executed=True, attempts_max=3),
    KvStorageError: Rule(executed=True, attempts_max=3),
    NotEnoughReplicasAfterAppend: Rule(executed=True),
}
"""Every error that may be retried. The request of an error with ``sent=False`` was not sent."""

LEADER_RULES = RULES | {
    UnknownTableOrBucket: Rule(executed=False, refresh=True),
    SchemaNotExist: Rule(executed=False, attempts_max=30),
    InvalidBucketRouting: Rule(executed=False, refresh=True, attempts_max=5),
}
"""The rules for a bucket's leader. The lookup shows whether the table still exists. A leader
that does not know its bucket has just started and will learn of it, so attempts have no limit. The
coordinator of Apache Fluss reports a new column before a leader knows it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The time limit of attempts, and the waits between them: full jitter, doubling ceiling."""

    timeout_ms: int
    """No attempt starts later than this after the first."""
    initial_ms: float = 100
    """Ceiling of the first wait."""
    max_ms: float = 2_000
    """Ceiling of every wait."""

    def wait_s(self, attempt: int, random: Callable[[], float]) -> float:
        """Seconds to wait after the ``attempt``-th failure (from 1)."""
        ceiling_ms = min(self.max_ms, self.initial_ms * 2.0 ** min(attempt - 1, 30))
        return random() * ceiling_ms / 1000


def rule_for(
    error: FlussError, *, idempotent: bool, rules: Mapping[type[FlussError], Rule] = RULES
) -> Rule | None:
    """The rule by which the call is sent again; None if it must not be."""
    rule = rules.get(type(error))
    if rule is None or error.details.get("final"):
        return None
    if rule.executed and not idempotent and error.details.get("sent") is not False:
        return None
    return rule


def call_with_retries(
    attempt: Callable[[], T],
    policy: RetryPolicy,
    *,
    idempotent: bool,
    rules: Mapping[type[FlussError], Rule] = RULES,
    on_retry: Callable[[FlussError, Rule], None] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = random_module.random,
) -> T:
    """Calls ``attempt`` until it succeeds, must not be repeated, or the time has passed.

    :param on_retry: called before each further attempt with what the one before ended by.
    :raises FlussError: the latest error; after several attempts its text names their number, and
        its detail ``gave_up`` is true.
    """
    started = now()
    failures: dict[type[FlussError], int] = {}
    while True:
        try:
            return attempt()
        except FlussError as error:
            failures[type(error)] = failures.get(type(error), 0) + 1
            attempts = sum(failures.values())
            rule = rule_for(error, idempotent=idempotent, rules=rules)
            wait_s = policy.wait_s(attempts, random)
            elapsed = now() - started
            if rule is None or policy.timeout_ms <= 0:
                raise
            if (
                failures[type(error)] >= rule.attempts_max
                or (elapsed + wait_s) * 1000 > policy.timeout_ms
            ):
                if attempts == 1:
                    raise
                raise type(error)(
                    f"{error} (gave up after {attempts} attempts in {elapsed:.1f} s)",
                    **{**error.details, "gave_up": True},
                ) from error
            failed = error
        sleep(wait_s)
        if on_retry is not None:
            on_retry(failed, rule)


def interruptible_sleep(stop: threading.Event, what: str) -> Callable[[float], None]:
    """A ``sleep`` that ends the retries of a call with an error once ``stop`` is set."""

    def sleep(seconds: float) -> None:
        if stop.wait(seconds):
            raise NetworkError(f"{what} was cancelled during a retry", final=True)

    return sleep
