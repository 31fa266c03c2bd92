"""What coordinator and metadata know of the leaders of buckets."""

from __future__ import annotations

from typing import Protocol

from sluice.model import TableBucket


class Leaders(Protocol):
    """Knows the leader of each bucket."""

    def leader(self, bucket: TableBucket) -> tuple[int | None, int]:
        """The leader's node id, None if there is none, and the leader epoch."""
