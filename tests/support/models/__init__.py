"""The model of a cluster and of a lake in memory, on which rounds run."""
