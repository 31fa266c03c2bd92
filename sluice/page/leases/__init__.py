"""What the page reads of leases on KV snapshots. Begin with ``reads``, the routes."""
