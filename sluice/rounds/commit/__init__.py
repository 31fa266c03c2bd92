"""The end of a round: what became of its splits, and its two commits.

Begin with ``commit.commit_round``: prepare the offsets, commit the lake on the planned base,
register the snapshot with Fluss. ``recover`` does the last part for a round that died in between.
Before it, ``base`` has what a round builds on and ``copying`` runs its splits, with the ``options``
that a driver sets. ``files`` makes deletes anew if another writer has rewritten data files,
``failures`` says why splits failed. ``report`` makes the results, ``ways_out`` says which files of
an attempt may be deleted at its end.

Must not know: executors, and why a round starts where it does.
"""
