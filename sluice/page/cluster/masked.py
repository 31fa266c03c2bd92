"""Texts from outside as answers show them: without secrets.

Rounds, servers and drivers mask what they write. On Apache Fluss, however, every client that may
write the table of statuses writes such texts, and so may anything that writes to the work folder.
"""

from __future__ import annotations

from functools import lru_cache

from sluice.masking import reason_text, version

KEPT = 8_192
"""Masked texts that are kept: at most 64 MB if all of them are long, and different."""


def masked(text: str, secrets: tuple[str, ...] = ()) -> str:
    """A text of at most 4,096 characters without secrets and control characters.

    :param secrets: values to mask wherever they occur, besides those that the process knows.
    """
    return _masked(text, secrets, version())


@lru_cache(KEPT)
def _masked(text: str, secrets: tuple[str, ...], known: int) -> str:
    del known  # with other secrets, the text of then does not count
    return reason_text(text, secrets)


def masked_or_none(text: str | None) -> str | None:
    return None if text is None else masked(text)
