"""The tablet server: logs and KV stores of buckets on disk, and their calls."""
