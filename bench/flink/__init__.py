"""Sluice beside Fluss's own Flink job."""
