"""Numbers inside messages that Fluss's messages do not name.

See docs/fluss/messages.md#catalog-changes, docs/fluss/messages.md#list-offsets and
docs/fluss/messages.md#calls-about-the-cluster
"""

from __future__ import annotations

from typing import Final

OFFSET_EARLIEST: Final = 0
OFFSET_LATEST: Final = 1
OFFSET_BY_TIMESTAMP: Final = 2
OFFSET_LEADER_END: Final = 3
"""``offset_type`` of ListOffsets."""

ALTER_SET: Final = 0
ALTER_DELETE: Final = 1
"""``op_type`` of PbAlterConfig. APPEND (2) and SUBTRACT (3) are for lists; no option is a list."""

HEALTH_GREEN: Final = 0
HEALTH_RED: Final = 2
"""``status`` of GetClusterHealth. YELLOW (1) is a cluster whose leaders lack in-sync replicas."""

POSITION_LAST: Final = 0
"""The one ``column_position_type`` that Fluss accepts."""

TIERING_PAUSE: Final = 0
TIERING_RESUME: Final = 1
TIERING_RETRY: Final = 2
TIERING_AGAIN: Final = 3
TIERING_COMPACT: Final = 4
"""``action`` of ControlTiering."""
