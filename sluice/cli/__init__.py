"""The command line: `sluice ...`."""
