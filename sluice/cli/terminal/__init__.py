"""What all commands share: options, output, errors, progress, and the cluster that they talk to.

Begin with ``output``: commands print through ``say``, ``print_table`` and ``print_json`` alone,
which mask secrets. ``options`` has the options that several commands have, ``errors`` turns an
error into one line and an exit code.

Must not know: any command.
"""
