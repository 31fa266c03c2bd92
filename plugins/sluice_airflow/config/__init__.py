"""What users configure: settings, arguments of DAG files, parameters of a run, the Fluss
connection.

Begin with ``settings`` (defaults are in ``provider_info``) and ``connection``. ``preflight`` checks
both before a run, ``deployment`` names this Airflow in lease ids.

Must not know: claims and runs.
"""
