"""Commands about the tiering of tables: tier, status, history, pause, repair, maintain, clean,
leases.

Begin with ``tier``. What they do is in ``sluice/driver`` and ``sluice/client``: here are its
options and words.
"""
