"""Iceberg: the catalog and commits through a py4j gateway, data files through pyarrow."""
