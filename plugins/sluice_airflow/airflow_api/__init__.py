"""What Sluice asks of Airflow itself: names that moved between its versions, its API server, its
logs.

Begin with ``api_server``. Nothing else here knows what a claim or a table is.
"""
