"""The simulated cluster: tables, logs that lose rows, and the network before it."""
