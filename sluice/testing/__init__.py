"""Tools for tests: clocks, clusters, conformance suites."""
