"""What the page shows of the maintenance of lake tables.

Begin with ``reads``, the routes, and what they read in the background. ``history`` has runs and
rounds; ``tables`` has the models, filters and orders without I/O.
"""
