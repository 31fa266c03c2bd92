"""How settings become the options of a round of a table with a primary key."""

from __future__ import annotations

from sluice.config import load_config
from sluice.driver.round_options import round_options
from sluice.model import BucketSnapshot, TableBucket
from sluice.rounds.values.limits import LookupBudget


def test_settings_of_a_keyed_round() -> None:
    settings = {
        "SLUICE_TIERING_CHANGES_MEMORY_BYTES": "1",
        "SLUICE_TIERING_SPILL_DIR": "/spill",
        "SLUICE_TIERING_POSITION_LOOKUP_BYTES": "2",
        "SLUICE_TIERING_POSITION_LOOKUP_FILES": "3",
    }
    held = BucketSnapshot(TableBucket(7, None, 0), 5, 9)
    options = round_options(load_config(environment=settings), [held], 1).keyed
    assert (options.memory_bytes, options.spill_dir) == (1, "/spill")
    assert options.lookups == LookupBudget(bytes_max=2, files_max=3)
    assert options.snapshots == {held.bucket: held}


def test_a_round_looks_up_keys_unless_told_otherwise() -> None:
    usual = round_options(load_config(), [], 1).keyed.lookups
    assert (usual.bytes_max, usual.files_max) == (1 << 30, 200)
    assert usual == LookupBudget(), "the settings have the defaults of the core"
