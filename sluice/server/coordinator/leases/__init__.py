"""KV snapshots and the leases that keep them.

Begin with ``leases``, which adds clock, lock and store to ``sluice/leases``. ``store`` and
``codec`` are one lease on disk, ``offline`` ends one of a stopped server, ``kv_snapshots``
registers snapshots and deletes those that no lease keeps.
"""
