"""The page's process with many tables."""
