"""How far a table must have come: what the sensor, its trigger and their log lines share. Does not
import Airflow.

Begin with ``table_watch``. ``until`` reads the goal as a user writes it, ``table_goal`` tells what
is missing.
"""
