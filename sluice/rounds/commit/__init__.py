"""The end of a round: what became of its splits, and its two commits.

Begin with ``commit.commit_round``: prepare the offsets, commit the lake on the planned base,
register the snapshot with Fluss. ``recover`` does the last part for a round that died in between.
``files`` makes deletes anew if another writer has rewritten data files, ``failures`` says why
splits failed.

Must not know: executors, and why a round starts where it does.
"""
