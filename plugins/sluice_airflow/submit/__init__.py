"""Runs spark-submit, and ends on every way out what it has started. Does not know tables.

Begin with ``process_group``. ``submission`` reads how to call spark-submit, ``pipe`` and ``output``
read what it prints, ``driver_end`` and ``oom_kills`` say why a driver ended.
"""
