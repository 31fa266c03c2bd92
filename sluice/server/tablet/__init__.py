"""The tablet server: logs of buckets on disk, and the calls that it answers."""
