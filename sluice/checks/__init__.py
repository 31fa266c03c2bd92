"""Checks that a round has what it needs, for Airflow's acquire task and `sluice doctor`."""
