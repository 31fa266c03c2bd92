"""What a lake table needs besides its rounds: what a scan has to read, and how much for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice.quantities import byte_size, counted
from sluice.rounds.upkeep.compaction import (
    DEAD_SHARE,
    DEFAULT_COMPACTIONS,
    FILES_MIN,
    FULL_SHARE,
    CompactionOptions,
    Sizes,
    dead_rows,
)
from sluice.rounds.values.lake_files import LiveFiles

MANY_FILES = 4 * FILES_MIN
"""A bucket with more data files than this is worth rewriting; full ones do not count."""
MANY_MANIFESTS = 20
"""More small manifests of data files than these are merged."""
SMALL_BYTES = 1 << 20
"""A scan reads so much data at once, whatever part of it is deleted."""


@dataclass(frozen=True, slots=True)
class TableHealth:
    """What a scan of one lake table has to read, and how much of it for nothing."""

    buckets: int = 0
    """Buckets of partitions that have files."""
    data_files: int = 0
    data_bytes: int = 0
    rows: int = 0
    """Rows in data files, deleted ones included."""
    dead_rows: int = 0
    """About how many of them are deleted by position."""
    files_of_worst: int = 0
    """Data files of the bucket that has the most."""
    position_files: int = 0
    """Position delete files and deletion vectors."""
    equality_files: int = 0
    """Files of equality deletes, which PyIceberg, polars and Snowflake refuse."""
    equality_rows: int = 0
    """The keys in them."""
    useless_equality_files: int = 0
    """Those that apply to no data file any more: rewrites by others leave them."""
    useless_equality_rows: int = 0
    snapshots: int = 0
    data_manifests: int = 0
    small_data_manifests: int = 0
    """Those that are smaller than half of the table's target size."""
    delete_manifests: int = 0
    manifest_bytes: int = 0
    """Bytes of both kinds."""
    metadata_bytes: int = 0
    """Bytes of the newest metadata file."""
    small_files_of_worst: int = 0
    """Those that are not full, of the bucket that has the most and that rounds can rewrite."""
    not_rewritable: str = ""
    """Why rounds do not compact some bucket; empty: they can compact all."""
    keeps_files: bool = False
    """Whether the property ``gc.enabled`` is false: other tables or branches may need its files."""
    unknown: str = ""
    """Why the files could not be counted; empty: they were."""

    @classmethod
    def of(
        cls,
        live: LiveFiles,
        *,
        options: CompactionOptions = DEFAULT_COMPACTIONS,
        unknown: str = "",
        **metadata: Any,
    ) -> TableHealth:
        """:param options: of the rounds: with a smaller budget, files are full sooner.
        :param unknown: why ``live`` is empty, if the files could not be counted.
        :param metadata: snapshots, manifests and their bytes.
        """
        buckets = live.buckets.values()
        full_bytes = FULL_SHARE * Sizes.of(options, live.target_file_bytes).file_bytes
        files = [file for bucket in buckets for file in bucket.files]
        return cls(
            buckets=len(live.buckets),
            data_files=len(files),
            data_bytes=sum(file.size_bytes for file in files),
            rows=sum(file.rows for file in files),
            dead_rows=round(sum(sum(dead_rows(bucket).values()) for bucket in buckets)),
            files_of_worst=max((len(bucket.files) for bucket in buckets), default=0),
            small_files_of_worst=max(
                (
                    sum(file.size_bytes < full_bytes for file in bucket.files)
                    for bucket in buckets
                    if not bucket.not_rewritable
                ),
                default=0,
            ),
            not_rewritable=next((b.not_rewritable for b in buckets if b.not_rewritable), ""),
            position_files=sum(len(bucket.marks) for bucket in buckets),
            equality_files=sum(len(bucket.keys) for bucket in buckets),
            equality_rows=sum(one.rows for bucket in buckets for one in bucket.keys),
            unknown=unknown or next((b.unusable for b in buckets if b.unusable), ""),
            **metadata,
        )

    @property
    def dead_share(self) -> float:
        return self.dead_rows / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        """Returns ``9 data files in 4 buckets, at most 3 in one, 12% deleted rows, ...``."""
        keys = self.equality_files + self.useless_equality_files
        parts = [
            f"{counted(self.data_files, 'data file')} in {counted(self.buckets, 'bucket')}",
            f"at most {self.files_of_worst} in one",
            byte_size(self.data_bytes),
            f"{self.dead_share:.0%} deleted rows",
            *([f"{self.position_files} with positions"] if self.position_files else []),
            *([f"{keys} with equality deletes"] if keys else []),
            counted(self.snapshots, "snapshot"),
            counted(self.data_manifests + self.delete_manifests, "manifest"),
            f"{byte_size(self.manifest_bytes + self.metadata_bytes)} of metadata",
        ]
        return ", ".join(parts)

    @property
    def is_scattered(self) -> bool:
        """Whether its rows are in many small files, or many of them are deleted."""
        return self.small_files_of_worst > MANY_FILES or self.dead_share > DEAD_SHARE

    @property
    def has_work(self) -> bool:
        """Whether maintenance itself can do what the table needs; only rounds rewrite rows."""
        keys = self.equality_files + self.useless_equality_files
        return keys > 0 or self.small_data_manifests > MANY_MANIFESTS

    def needs(self, *, dead_of_bytes: int = 0) -> Iterator[str]:
        """What is worth doing, in words.

        :param dead_of_bytes: deleted rows count if the data files have this many bytes.
        """
        if self.unknown:
            yield f"its files could not be counted: {self.unknown}"
        if count := self.equality_files + self.useless_equality_files:
            files = counted(count, "equality delete file")
            yield f"{files}: PyIceberg, polars and Snowflake refuse the table"
        if self.small_files_of_worst > MANY_FILES:
            files = counted(self.small_files_of_worst, "small data file")
            yield f"up to {files} in a bucket: scans are slow"
        if self.dead_share > DEAD_SHARE and self.data_bytes >= dead_of_bytes:
            yield f"about {self.dead_share:.0%} of its rows are deleted, and are still read"
        if self.small_data_manifests > MANY_MANIFESTS:
            manifests = counted(self.small_data_manifests, "small manifest")
            yield f"{manifests} of data files: each scan reads them"
