"""A deliberate difference from Apache Fluss, and the reasons that several of them share."""

from __future__ import annotations

from dataclasses import dataclass

FENCED = (
    "an Apache Fluss cluster does not fence lake commits; the embedded server does"
    " (docs/fluss/known-problems.md#unfenced-lake-commits)"
)
CLEARER = "Apache Fluss returns error -1 with a stack trace; the embedded server names the cause"
LOOKED_AT = "Apache Fluss leases snapshots that do not exist (its issue 2600); Sluice checks them"


@dataclass(frozen=True, slots=True)
class Difference:
    """The embedded server's answer and the reason for it."""

    answered: object
    reason: str
