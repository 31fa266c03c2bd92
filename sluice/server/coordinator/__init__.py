"""The coordinator: catalog, tiering states, lake snapshots, and the calls that it serves."""
