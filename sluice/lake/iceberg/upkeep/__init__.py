"""Keeps a table small: expires snapshots, converts equality deletes, merges manifests.

Begin with ``maintenance`` (beside rounds) and ``snapshot_expiry`` (in rounds too).
"""
