"""The hook."""
