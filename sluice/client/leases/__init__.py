"""Leases on KV snapshots, as a client holds them.

Begin with ``snapshot_lease``, a ``with`` block over ``calls`` (acquire, renew, release, drop) and
``keeper`` (renews in the background). ``ids`` has the lease ids of Airflow's runs, ``tier_lease``
that of ``sluice tier``. ``round_leases`` says who holds leases on a cluster that lists none. The
rules are in ``sluice/leases``.
"""
