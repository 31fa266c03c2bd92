"""The page in a browser, and a cluster to show on it."""
