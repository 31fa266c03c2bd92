"""Clients that are not ours: pyfluss, Fluss's Java client, Flink."""
