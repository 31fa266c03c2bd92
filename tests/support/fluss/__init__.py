"""A real Apache Fluss, and the embedded server with no more than it has."""
