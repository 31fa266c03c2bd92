"""A compaction that was requested for one table: the table's next round carries it out.

The request is kept with the table's status. It stays until a round has rewritten all that is worth
it, within its budget, and ends after a day, or after twice the table's freshness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.errors import SluiceError
from sluice.model import Claim, TableBucket, TableInfo
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.values.lake_files import LiveFiles
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.reasons import reason_of
from sluice.statuses import freshness_ms

REQUEST_MS_MAX = 24 * 3_600_000
"""A request lasts at least so long."""


def request_ms_max(info: TableInfo) -> int:
    """An older request ends with the table's next round: rounds may be further apart than a day."""
    return max(REQUEST_MS_MAX, 2 * freshness_ms(info.descriptor.properties))


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The request of one table, as a round has read it."""

    requested_ms: int | None = None
    """Epoch milliseconds; None: nothing was requested."""
    unknown: str = ""
    """Why the request is not known; empty: it is."""
    is_old: bool = False
    """Whether it ends with this round, which does not carry it out."""

    @classmethod
    def read(
        cls, claim: Claim, cluster: Cluster, info: TableInfo, now_ms: int
    ) -> CompactionRequest:
        """Reads the request; if the status cannot be read, the next round reads it again.

        :param now_ms: epoch milliseconds.
        """
        try:
            found = cluster.compaction_requested_ms(claim)
        except SluiceError as error:
            return cls(None, reason_of(error).text)
        is_old = found is not None and now_ms - found > request_ms_max(info)
        return cls(found, is_old=is_old)

    @property
    def is_open(self) -> bool:
        return self.requested_ms is not None and not self.is_old

    def options(self, compaction: CompactionOptions, info: TableInfo) -> CompactionOptions:
        """The options of this round."""
        return compaction.of_table(info, is_requested=self.is_open)

    @property
    def notes(self) -> list[str]:
        """Notes of the round about the request itself."""
        if self.unknown:
            return [f"not known whether a compaction was requested: {self.unknown}"]
        return []

    def not_done(
        self,
        options: CompactionOptions,
        live: LiveFiles | None,
        beyond: Mapping[TableBucket, str],
    ) -> list[str]:
        """What was requested, but cannot be done: it belongs to what the round has compacted.

        :param live: the files of the table; None: they were not read.
        :param beyond: why no round can compact these buckets.
        """
        if self.is_old:
            return ["the requested compaction ended unfinished: it is too old"]
        if not self.is_open:
            return []
        if options.bytes_max <= 0:
            return ["the requested compaction was left out: tiering.compaction_bytes is 0"]
        buckets = live.buckets.items() if live is not None else ()
        reasons = {
            why: bucket.name
            for bucket, files in buckets
            if (why := files.unusable or files.not_rewritable)
        }
        reasons |= {why: bucket.name for bucket, why in beyond.items()}
        return [f"bucket {name} cannot be compacted: {why}" for why, name in reasons.items()]

    def completed_ms(self, report: CompactionReport, left: int) -> int | None:
        """The request if it needs no other round; None: it stays, or there is none.

        :param left: buckets of which files are left, because they are beyond the budget or failed.
        """
        is_done = not left and not report.left_out
        return self.requested_ms if is_done or self.is_old else None


NO_REQUEST = CompactionRequest()
