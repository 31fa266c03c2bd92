"""The simulated lake: snapshots by Iceberg's rules, its writers and its maintenance."""
