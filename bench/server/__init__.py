"""The embedded server: appends, puts, scans, leases, statuses."""
