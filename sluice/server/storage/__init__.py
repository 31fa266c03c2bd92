"""The coordinator's metadata storage: one SQLite file."""
