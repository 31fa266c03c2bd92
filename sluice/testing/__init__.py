"""Tools for tests: clusters, a simulation and a conformance suite."""
