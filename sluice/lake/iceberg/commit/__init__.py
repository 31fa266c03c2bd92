"""Iceberg's updates for one commit: new files, positions, rewrites, the tag, the fence.

Begin with ``fence``: the newest tiering snapshot must be the planned base. ``position_checks`` says
what a commit with positions relies on, ``tagged_update`` moves the tag in the same commit.
"""
