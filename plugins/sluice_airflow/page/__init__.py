"""The page "Lake tiering" inside Airflow: `sluice.page` with Airflow's login and permissions.

Only `plugin` is imported by all of Airflow's processes. The rest needs FastAPI and Airflow's
database, and only the API server loads it.
"""
