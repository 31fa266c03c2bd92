"""The exceptions to the rules for pages, all in one place."""

GENERATED = {
    "docs/catalogs/store-options.md": "scripts/store_docs.py",
    "docs/commands.md": "scripts/command_docs.py",
    "docs/configuration.md": "scripts/config_docs.py",
}
"""Pages that a script writes; its ``--check`` says whether they are up to date."""

NOT_RUN = {
    ("docs/airflow.md", "scripts/setup.sh runs it, and it needs the network"),
    ("README.md", ".ci/run runs the tests, and tests/e2e/test_demo_real.py the demo"),
    ("docs/compiled-loops.md", "it installs packages"),
    ("docs/compose.md", "it builds an image and starts containers"),
    ("docs/compose.md", "it stops containers"),
    ("docs/lake.md", "Trino is not installed"),
    ("docs/versions.md", "it installs packages"),
}
"""Page and reason of every ``<!-- not run: reason -->``; several blocks may share one."""

NOT_RUN_MAX = 12
