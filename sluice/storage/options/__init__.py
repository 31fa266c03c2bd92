"""What becomes of each option of a store, by name: passed to pyarrow, refused, or ignored.

Begin with ``rules``. ``s3`` and ``azure`` have the tables of two stores;
``sluice/storage/known.py`` joins all of them.
"""
