"""The one way of texts out of a process: without secrets, and safe to show.

Patterns find texts that look like secrets. Values that a configuration calls secret are found in
each encoding, because the process has been told of them (:func:`know`). Control characters become
visible, so that no text moves a cursor, sets a colour or begins a line of its own.
"""

from sluice.masking.characters import one_line, visible
from sluice.masking.forms import MASK, TEXT_CHARS_MAX, is_secret_name
from sluice.masking.known import (
    encodings,
    forget_all,
    know,
    know_environment,
    secrets_in,
    secrets_of,
    version,
)
from sluice.masking.texts import (
    REASON_CHARS_MAX,
    MaskingFormatter,
    cut,
    cut_reason,
    holds_secret,
    line,
    lines,
    mask,
    masked_values,
    reason_text,
    record_lines,
    without_torn_end,
)

__all__ = [
    "MASK",
    "REASON_CHARS_MAX",
    "TEXT_CHARS_MAX",
    "MaskingFormatter",
    "cut",
    "cut_reason",
    "encodings",
    "forget_all",
    "holds_secret",
    "is_secret_name",
    "know",
    "know_environment",
    "line",
    "lines",
    "mask",
    "masked_values",
    "one_line",
    "reason_text",
    "record_lines",
    "secrets_in",
    "secrets_of",
    "version",
    "visible",
    "without_torn_end",
]
