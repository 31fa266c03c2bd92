"""The root of all errors, and those that are the project's own."""

from __future__ import annotations

from typing import Any, ClassVar


class SluiceError(Exception):
    """Root of all errors that the project raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(cls: type[SluiceError], message: str, details: dict[str, Any]) -> SluiceError:
    return cls(message, **details)


class ConfigurationError(SluiceError):
    """A setting with a wrong value; the message names key, value and what is allowed."""


class NoFileSystem(ConfigurationError, ValueError):
    """A URI has a scheme for which no file system is installed.

    Also a ValueError, as libraries of file systems raise it, so that it is handled like theirs.
    """


class MissingExtra(SluiceError):
    """A package is not installed; the message names it and the command that installs it.

    Details: ``module`` that was not found, ``extra`` of the distribution that brings it.
    """


class UnsupportedType(SluiceError):
    """A data type that a format, an encoder or the lake cannot carry."""


class DataDirError(SluiceError):
    """The server's data directory cannot be used."""


class DataDirLocked(DataDirError):
    """Another server uses the data directory."""


class UnknownDataDirFormat(DataDirError):
    """The data directory was written by an unknown version of Sluice."""


class LakeError(SluiceError):
    """The lake table or its storage cannot be used."""


class LakeTableMismatch(LakeError):
    """The lake table has another schema, spec or sort order than the Fluss table needs.

    Or it is another table than the one that was loaded.
    """


class LakeTableMissing(LakeError):
    """Fluss has tiered offsets of a table that does not exist in the lake."""


class LakeNotWritable(LakeError):
    """The lake's storage or catalog refused a write."""


class LakeRolledBack(LakeError):
    """The lake's newest snapshot is behind the offsets that Fluss has registered."""


class LakeOffsetsLost(LakeError):
    """The file with a lake snapshot's offsets is missing, truncated or changed."""


class LakeFileUnreadable(LakeError):
    """A file of the lake is damaged, or has a form that Sluice does not read."""


class LakeCommitRefused(LakeError):
    """The lake, or what Fluss has registered of it, has changed since the plan.

    Nothing was committed, and no file is referenced.
    """


class LakeFilesChanged(LakeCommitRefused):
    """Other writers have changed data files whose rows the commit deletes by position."""


class LakeCommitOutcomeUnknown(LakeError):
    """The outcome of the lake commit is unknown: check it, repeat nothing, delete nothing."""


class UnsupportedLakeOption(LakeError):
    """A lake option of Fluss that this project does not honour."""


class RoundError(SluiceError):
    """A round of tiering cannot continue."""


class LogBehindLake(RoundError):
    """A bucket's log ends before its tiered offset: the log has lost rows."""


class LogBeginsAfterLake(RoundError):
    """A bucket's log begins after the lake's end: the log has lost rows that the lake lacks."""


class ClaimLost(RoundError):
    """Another round of the table has started: this one has no claim. Not a failure of the table."""


class StatusUnreadable(RoundError):
    """Whether a table is paused, or a compaction is requested, cannot be read."""

    retryable = True


class TableNotDue(RoundError):
    """The table is not due: it was tiered recently, or another round has claimed it."""


class LeaseNotObtained(RoundError):
    """Not every KV snapshot could be leased in time."""


class LeaseLost(RoundError):
    """A lease has ended while its snapshots were still needed: they may have been deleted."""


class ScanRestarted(SluiceError):
    """A full scan has lost its snapshot of the rows: start it again, with newer rows.

    Details: ``rows`` (how many were yielded), their ``log_offset``, ``bucket``.
    """

    retryable = True


class SplitFailed(RoundError):
    """One bucket's part of a round failed on its executor."""


class SparkJobFailed(RoundError):
    """Spark gave up the job of a round, for instance because an executor or its worker was killed.

    What splits themselves report is ``SplitFailed``.
    """

    retryable = True


class SpillFailed(RoundError):
    """The local folder for data that exceeds memory is full, or cannot be read or written."""


class DriverLost(RoundError):
    """The Spark driver ended without a result and without a reason."""


class StoppedByUser(RoundError):
    """A user stopped the round: ended its command, marked its task or its run, or cleared it.

    This is no failure of the table.
    """


class TablePaused(RoundError):
    """A user paused the table while a round of it ran or waited.

    This is no failure of the table.
    """


class TierTimedOut(RoundError):
    """A try of the tier task took longer than its time limit, and its driver was stopped."""

    retryable = True


class RoundsNotEnough(RoundError):
    """The rounds of a run did not reach the end that the run was asked to reach."""

    retryable = True


class DriverRefused(RoundError):
    """The Spark driver could not be started."""


class SparkSettingsWrong(RoundError):
    """Spark cannot start with these settings, files and programs: no second start helps.

    This is no failure of a table.
    """


class QueryFailed(SluiceError):
    """Spark refused a query or failed at it."""


class UnknownFileVersion(RoundError):
    """A plan, result or failure file of a version that this Sluice does not support."""
