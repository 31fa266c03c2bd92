"""Where Airflow shows the page. Imports nothing: all processes of Airflow load it."""

PREFIX = "/sluice"
"""Where the API server serves the page."""
TAB = "lake-tiering-of-dag"
"""The last part of the address of a DAG's tab."""
