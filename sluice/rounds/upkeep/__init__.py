"""What keeps a lake table small and quick to read, in a round or beside it.

In a round: ``compaction`` chooses the data files that it rewrites (``requested``: because a user
asked), ``rewrites`` commits those of a log table, ``expire`` is its last step. Beside rounds:
begin with ``maintenance``; ``health`` says what a table needs, ``conversion`` makes positions of
equality deletes, ``orphans`` finds the files that nobody needs.

Must not know: offsets, and the commit of a round.
"""
