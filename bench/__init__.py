"""Benchmarks that print ratios: `make bench`."""
