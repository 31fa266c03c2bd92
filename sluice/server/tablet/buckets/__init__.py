"""What logs and KV stores share: files, locks, schemas, and what they ask of the coordinator.

Begin with ``ports``.
"""
