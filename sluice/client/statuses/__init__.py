"""Tiering statuses of a cluster, and what users request for a table.

Begin with ``statuses.StatusClient``. A coordinator that reports statuses is asked
(``coordinator``). For one that keeps none, rounds record them: ``recorded`` reads and writes, over
``status_table`` and ``round_table``. ``watch`` reads very many again and again.

Must not know: claims and rounds as they run.
"""
