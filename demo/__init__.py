"""The whole way on real data: server, load, Airflow, Spark, lake, comparison. `make demo`."""
