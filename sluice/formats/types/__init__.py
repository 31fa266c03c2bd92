"""Fluss's data types, schemas and descriptors, to Arrow and to JSON and back.

Begin with ``types``. ``conform`` brings a user's Arrow data to the columns of a table,
``evolution`` rows of one schema to another.
"""
