"""The lake after many rounds: scans, history, catalogs, maintenance."""
