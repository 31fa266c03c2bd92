"""Where the coordinator keeps its metadata: one SQLite file."""
