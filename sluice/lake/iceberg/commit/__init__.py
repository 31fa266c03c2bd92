"""Iceberg's updates for one commit: new files, positions, rewrites, the tag, the fence.

Begin with ``table_commits``, which commits a round's files. ``fence`` checks that the newest
tiering snapshot is the planned base, ``position_checks`` says what a commit with positions relies
on, and ``tagged_update`` moves the tag in the same commit.
"""
