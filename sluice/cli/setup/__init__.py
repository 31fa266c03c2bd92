"""Commands that prepare a machine, and check it: doctor, jars, warm, spark-files, airflow-dag."""
