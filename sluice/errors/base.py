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
    """The data directory was written by a version that this one does not know."""


class LakeError(SluiceError):
    """Something about the lake table or its storage."""


class LakeTableMismatch(LakeError):
    """The lake table has another schema, spec or sort order than the Fluss table needs."""


class LakeTableMissing(LakeError):
    """Fluss knows tiered offsets of a table that the lake does not have."""


class LakeNotWritable(LakeError):
    """The lake's storage or catalog refused a write."""


class LakeRolledBack(LakeError):
    """The lake's newest snapshot is behind the offsets that Fluss has registered."""


class LakeOffsetsLost(LakeError):
    """The file with a lake snapshot's offsets is gone, cut or changed."""


class LakeCommitRefused(LakeError):
    """The lake moved on since the plan: nothing was committed, and the files are not referenced."""


class LakeCommitOutcomeUnknown(LakeError):
    """The lake commit may or may not have landed: look it up, repeat nothing, delete nothing."""


class UnsupportedLakeOption(LakeError):
    """A lake option of Fluss that this project does not honour."""


class RoundError(SluiceError):
    """A round of tiering cannot go on."""


class LogBehindLake(RoundError):
    """A bucket's log ends before the offset up to which it was tiered: it has lost rows."""


class ClaimLost(RoundError):
    """The table is no longer this round's: another one was begun. Not a failure of the table."""


class TableNotDue(RoundError):
    """No table waits to be tiered: it was tiered lately, or another round has it."""


class LeaseNotObtained(RoundError):
    """Not every KV snapshot could be leased in time."""


class LeaseLost(RoundError):
    """A lease has ended while its snapshots were still needed: they may be gone by now."""


class ScanRestarted(SluiceError):
    """A full scan has lost its frozen rows: it can only be begun anew, with newer ones.

    Details: ``rows`` (how many were yielded), their ``log_offset``, ``bucket``.
    """

    retryable = True


class SplitFailed(RoundError):
    """One bucket's part of a round failed on its executor."""


class SpillFailed(RoundError):
    """The local folder for what does not fit in memory is full, or cannot be read or written."""


class DriverLost(RoundError):
    """The Spark driver ended without a result and without a reason."""


class DriverRefused(RoundError):
    """The Spark driver could not be started."""


class QueryFailed(SluiceError):
    """Spark refused a query or failed at it."""


class UnknownFileVersion(RoundError):
    """A plan, result or failure file of a version that this one does not read."""
