"""Claims tables for a run, and keeps the claims until their tasks start. Does not import Airflow.

Begin with ``acquire``. ``requests`` has what a run was asked for, ``keeper`` sends heartbeats while
no task does, ``idle`` finishes tables without new rows, ``earlier_packs`` takes over from an
earlier try.
"""
