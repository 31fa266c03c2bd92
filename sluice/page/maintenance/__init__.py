"""What the page shows of the maintenance of lake tables.

Begin with ``reads``, the routes. ``reader`` follows runs in the background (``runs``) and the
history of rounds (``rounds``); ``tables`` filters and orders without I/O.
"""
