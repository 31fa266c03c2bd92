"""Whether this run has the time of a night: `HYPOTHESIS_PROFILE=nightly make test-long`."""

from __future__ import annotations

import os

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
