"""Leases on KV snapshots, as a client holds them.

Begin with ``snapshot_lease``, a ``with`` block over ``calls`` (acquire, renew, release, drop) and
``keeper`` (renews in the background). ``ids`` has the lease ids of Airflow's runs, ``tier_lease``
that of ``sluice tier``. Who may hold a lease on a cluster that lists none is in
``sluice/client/round_leases.py``; the rules are in ``sluice/leases``.
"""
