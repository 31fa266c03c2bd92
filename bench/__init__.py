"""Benchmarks of Sluice, run by `make bench`. Each compares its result with a reference."""
