"""Whether this run has the time of a night: `HYPOTHESIS_PROFILE=nightly make test-long`."""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = settings.get_current_profile_name() == "nightly"
