"""Sensors for the DAGs of users."""
