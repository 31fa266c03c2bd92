"""What a table must be like for a lake table of Iceberg, and what its lake table looks like.

Pure: Fluss's table and Iceberg's JSON come as arguments. Begin with :mod:`.layout`, which knows the
columns, partition fields and order of a lake table. :mod:`.keys` and :mod:`.properties` say what a
table of Fluss may have.
"""
