"""The driver script that spark-submit runs. It needs pyspark; ``sluice`` does not import it."""
