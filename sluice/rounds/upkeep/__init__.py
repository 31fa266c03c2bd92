"""What keeps a lake table small and quick to read, in a round or beside it.

Begin with ``compaction`` (which data files a round rewrites) and ``maintain`` (what ``sluice
maintain`` does). ``expire`` is the last step of a round, ``orphans`` finds the files that dead
rounds left.

Must not know: offsets, and the commit of a round.
"""
