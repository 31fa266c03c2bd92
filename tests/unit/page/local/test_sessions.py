"""Sessions of `sluice ui`: how they end."""

from __future__ import annotations

from sluice.page.local.sessions import IDLE_S, Sessions
from tests.support.statuses.status_shop import OwnClock


def test_a_session_ends_when_nobody_has_used_it_for_12_hours() -> None:
    clock = OwnClock()
    sessions = Sessions(clock)
    used, left = sessions.begin(sessions.token), sessions.begin(sessions.token)
    assert used
    assert left
    for _ in range(3):
        clock.ms += round((IDLE_S - 1) * 500)
        assert sessions.holds(used)
    assert not sessions.holds(left)
    clock.ms += round(IDLE_S * 1000)
    assert not sessions.holds(used)
    assert not sessions.holds(used)
