"""``sluice ui``: the page for the person who started it, behind a one-time link.

Begin with ``serving``. ``http_server`` bounds connections, ``sessions`` knows who may see the page,
``place`` is the cluster without Airflow.
"""
