"""The page "Lake tiering": one JSON API, and the built front end that shows it.

Airflow serves it with its own login and permissions (`sluice_airflow.page`), and `sluice ui`
without Airflow. It needs FastAPI, which Airflow and the extra ``[ui]`` have.
"""
