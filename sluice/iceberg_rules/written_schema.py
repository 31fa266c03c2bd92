"""What a round writes down of the schemas that it was written with, in the snapshot's summary.

The next round sees by that which column of the lake is which one of Fluss, whatever their names are
by then, and which changes of the lake came from other engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA_KEY = "sluice.schema"
"""Key in a snapshot summary."""


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """The schemas of one round."""

    schema_id: int
    """Fluss's."""
    lake_schema_id: int
    """Iceberg's."""
    field_ids: Mapping[int, int] = field(default_factory=dict)
    """The lake's field id of each column, by Fluss's column id."""

    def to_summary(self) -> dict[str, str]:
        """The entry of the summary: ids that follow each other are one run of three numbers."""
        runs: list[list[int]] = []
        for column_id, field_id in sorted(self.field_ids.items()):
            if runs and [column_id, field_id] == [first + runs[-1][2] for first in runs[-1][:2]]:
                runs[-1][2] += 1
            else:
                runs.append([column_id, field_id, 1])
        content = {"fluss": self.schema_id, "lake": self.lake_schema_id, "fields": runs}
        return {SCHEMA_KEY: json.dumps(content, separators=(",", ":"))}

    @classmethod
    def of_summary(cls, summary: Mapping[str, str]) -> WrittenSchema | None:
        """What a summary says; None: Fluss's own tiering or an older Sluice wrote the snapshot."""
        try:
            content = json.loads(summary[SCHEMA_KEY])
            ids = {
                int(column_id) + place: int(field_id) + place
                for column_id, field_id, count in content["fields"]
                for place in range(count)
            }
            return cls(int(content["fluss"]), int(content["lake"]), ids)
        except (KeyError, TypeError, ValueError):
            return None
