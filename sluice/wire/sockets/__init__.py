"""TCP connections and TLS, and words for those that fail."""
