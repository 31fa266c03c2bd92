"""`make demo`: tiers real data with Airflow and Spark, and compares the lake with the source.

Begin with `run`: its steps. `servers`, `rest_servers` and `airflow` start what it needs, `data` and
`tables` make its rows, `comparison` reads the lake with Spark and PyIceberg and compares it.
`report` writes what was found. `shots` takes the pictures of the documentation.
"""
