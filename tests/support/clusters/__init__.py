"""Spark, YARN, Kubernetes, PostgreSQL, S3 and a REST catalog, as tests start them."""
