"""What logs and KV stores share: files, leadership, schemas, and what they ask of the coordinator.

Begin with ``ports``.
"""
