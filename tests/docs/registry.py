"""The exceptions to the rules for pages, all in one place."""

UNCONVERTED = {
    "README.md",
    "docs/airflow.md",
    "docs/clean-up.md",
    "docs/real-fluss.md",
    "docs/repair.md",
    "docs/status.md",
    "docs/system-tables.md",
}
"""Pages that do not meet the rules yet: nothing of them is checked. A page that does has to go."""

GENERATED = {
    "docs/commands.md": "scripts/command_docs.py",
    "docs/configuration.md": "scripts/config_docs.py",
}
"""Pages that a script writes; its ``--check`` says whether they are up to date."""

NOT_RUN = {
    ("docs/compiled-loops.md", "it installs packages"),
    ("docs/compose.md", "it builds an image and starts containers"),
    ("docs/compose.md", "it stops containers"),
    ("docs/versions.md", "it installs packages"),
}
"""Page and reason of every ``<!-- not run: reason -->``; several blocks may share one."""

NOT_RUN_MAX = 12
