"""Client calls of a tiering worker: claims, heartbeats, reports, lake snapshots.

Begin with ``tiering.TieringClient``, which is the ``Cluster`` of a round
(``sluice/rounds/values/ports.py``). ``heartbeats`` keeps claims, ``claim_session`` takes several,
``idle`` finds tables without new rows, ``log_source`` reads on executors.
"""
