"""Drivers of a round: in this process, or on Spark; and the JVM that commits for the first."""
