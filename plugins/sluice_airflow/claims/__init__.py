"""What the tasks of a run pass on about a claimed table. Does not import Airflow.

Begin with ``claims.ClaimedTable``. ``packs`` divides tables among Spark applications,
``claimed_again`` follows a claim that its run lost and got back, ``leasing`` keeps KV snapshots for
the run.

Must not know: how a table is claimed, and what became of it.
"""
