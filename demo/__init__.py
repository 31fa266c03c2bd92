"""`make demo`: tiers real data with Airflow and Spark, and compares the lake with the source."""
