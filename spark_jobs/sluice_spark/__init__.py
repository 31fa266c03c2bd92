"""What spark-submit runs: the driver script. It needs pyspark; the core does not import it."""
