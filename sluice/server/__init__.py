"""The embedded, Fluss-compatible cluster: coordinator and tablet in one process."""
