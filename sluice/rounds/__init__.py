"""One round of tiering: recover, plan, copy, commit, report.

Rooms, each of which may import those before it:

- ``records``: the files of a run under ``work_uri``: plans, results, failures, sizes.
- ``values``: splits, files, results, limits and reasons; cluster and lake as Protocols.
- ``plan``: which offsets of which buckets a round copies.
- ``copy``: one split, from the log to data files. Runs on executors.
- ``upkeep``: what keeps a lake table small: compaction, expiry, clean-up, maintenance.
- ``commit``: the end of a round: outcomes of splits, files, the two commits, recovery.
- ``repair``: what a user does about a table that no ordinary round can tier.
- ``round``: an ordinary round. Begin here: ``round/round.py`` reads like docs/design.md.

A round knows no gRPC, no py4j and no format of bytes: ``values/ports.py`` has all that it asks of
cluster, lake and executors.
"""
