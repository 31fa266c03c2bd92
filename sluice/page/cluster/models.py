"""What answers of the JSON API have in common, whatever they are about.

FastAPI makes the OpenAPI description from these classes and those of the other ``*_models``.
Times end in ``_ms`` and are epoch milliseconds, as do durations in milliseconds. Null: not known.
Ids of 64 bits are text, because a browser rounds large numbers.
"""

from __future__ import annotations

from pydantic import BaseModel, Field


class Reading(BaseModel):
    """How fresh an answer is: the cluster is read in the background."""

    now_ms: int = Field(description="The clock of the server that answers")
    read_ms: int | None = Field(
        default=None, description="When the statuses were read; null: not yet"
    )
    lags_read_ms: int | None = Field(
        default=None, description="When the oldest lag was read; null: at least one is not read yet"
    )
    lags_unread: int = Field(
        default=0,
        description="Lake tables whose lag cannot be read now, for example because a tablet server"
        " is out of reach",
    )
    tables_read: int = Field(default=0, description="Lake tables whose status has been read")
    is_complete: bool = Field(default=False, description="Whether every table was read once")
    error: str | None = Field(default=None, description="Why the last read failed, without secrets")


class Link(BaseModel):
    """A link to another page."""

    name: str
    url: str


class Old(BaseModel):
    """That an answer was read earlier: it was not read now."""

    read_ms: int = Field(description="When it was read")
    why: str = Field(description="Why it was not read now, without secrets")


OLD = Field(default=None, description="When it was read, if not now, and why; null: now")


class Answer(BaseModel):
    """What an action did."""

    message: str
    url: str | None = Field(default=None, description="The run that it started")
    changed_ms: int | None = Field(
        default=None,
        description="When the table had been changed: for the header X-Sluice-Changed",
    )


class Problem(BaseModel):
    """Why a request failed: one line that names what to do, without secrets."""

    error: str = Field(description="The class of the error")
    message: str
