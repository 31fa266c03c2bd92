"""Drivers inside a Spark application. They get Spark's context as an argument, and import no
pyspark.

Begin with ``pack`` (the tables of one application, a thread each) and ``round`` (one round:
executors copy, this JVM commits). ``maintenance`` maintains tables, ``sql`` answers one query.
"""
