"""What a user does about a table that no ordinary round can tier (docs/repair.md).

Begin with ``diagnose.diagnose``: the state of a table, and the repairs that it offers.
``round.run_repair`` runs the one that its user chose. ``retier`` plans to tier a table again,
``splits`` has the splits of each repair, ``accepted_losses`` stops a repair that would lose more
than its user has seen.
"""
