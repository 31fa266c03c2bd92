"""The inside of the tier task: it watches the driver of a pack, and reports its tables one by one.

Begin with ``pack_watch``; ``operators/tier.py`` calls it. ``tried_table`` is one table in one try,
``errors`` says at the end why tables were not tiered, ``next_rounds`` begins further rounds.
"""
