"""Compiled loops over rows, records and SST blocks.

Begin with ``compiled``, whose functions the other rooms call. ``build`` compiles them, ``objects``
loads what the wheel brings, ``cache`` keeps what was compiled here. The loops themselves are
``row_kernels``, ``row_writers``, ``array_kernels``, ``record_kernels``, ``sst_kernels`` and
``xxh3_kernels``; ``row_layout`` and ``sst_layout`` have what Python and loops share.
"""
