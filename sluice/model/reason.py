"""Why a round failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.masking import cut_reason, holds_secret, reason_text

WITHHELD = "a text that contained a secret is withheld: see the log of the driver"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a round failed, without secrets. Its text is short and is about one failure.

    :meth:`from_text` masks the texts once, and every later step passes the object on.
    :meth:`checked` is for the places where a reason leaves the process. The constructor alone is
    for reasons that were made in another process.
    """

    kind: str
    """Class name of the error; empty if the text says enough."""
    text: str
    deepest_cause: str = ""
    retryable: bool = False

    @classmethod
    def from_text(
        cls,
        text: str,
        secrets: Iterable[str] = (),
        *,
        kind: str = "",
        deepest_cause: str = "",
        retryable: bool = False,
    ) -> Reason:
        """Makes a reason: masks and shortens its texts.

        :param secrets: values to mask wherever they occur: ``Config.secrets()``.
        """
        hidden = tuple(secrets)
        return cls(kind, reason_text(text, hidden), reason_text(deepest_cause, hidden), retryable)

    def caused(self, kind: str, words: str) -> Reason:
        """Makes the reason of a failure that this one caused.

        :param words: our own words about that failure; the text of this reason follows them.
        """
        deepest = self.deepest_cause or str(self)
        return Reason.from_text(
            f"{words}: {self}", kind=kind, deepest_cause=deepest, retryable=self.retryable
        )

    def checked(self, secrets: Iterable[str] = ()) -> Reason:
        """Returns this reason to send or to store; without its texts if they contain a secret."""
        hidden = tuple(secrets)
        texts = (self.kind, self.text, self.deepest_cause)
        if any(holds_secret(text, hidden) for text in texts):
            return Reason("", WITHHELD, retryable=self.retryable)
        return self

    def __str__(self) -> str:
        """``KIND: text`` in at most 4,096 characters, as a table's status shows it."""
        return cut_reason(f"{self.kind}: {self.text}" if self.kind else self.text)
