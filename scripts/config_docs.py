"""Writes docs/configuration.md from sluice/config.py, so that it cannot be wrong.

``python -m scripts.config_docs`` writes it, ``--check`` compares and fails if it is out of date.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_type_hints

from scripts.written_page import write_or_check
from sluice import config

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

`scripts/config_docs.py` writes this page from `sluice/config.py`.

Every program reads its settings once, at its start. Later sources override earlier ones:

1. the file that `--config` names (TOML, one table per section);
2. environment variables, such as `SLUICE_SERVER_DATA_DIR`;
3. command-line options.

An unknown key or a wrong value ends the program with exit code 2 and a line that names it. A
variable `SLUICE_...` that resembles no section and no setting is left alone, because other programs
may use it.

```toml
[server]
data_dir = "/var/lib/sluice"
listen = "grpc://127.0.0.1:9123"

[datalake]
format = "iceberg"
iceberg = { type = "hadoop", warehouse = "/data/lake" }
```

For an Apache Fluss cluster with a REST catalog that vends the keys of the store, for `sluice tier`,
`repair`, `clean` and `doctor`. It needs a login, but no keys:

```toml
[client]
bootstrap = "fluss://fluss.example:9123"
username = "etl"    # the password by the variable SLUICE_CLIENT_PASSWORD

[datalake.iceberg]
type = "rest"
uri = "https://catalog.example/iceberg"
warehouse = "lake"
oauth2-server-uri = "https://catalog.example/iceberg/v1/oauth/tokens"
"header.X-Iceberg-Access-Delegation" = "vended-credentials"
# its login by the variable SLUICE_DATALAKE_ICEBERG_CREDENTIAL: CLIENT-ID:CLIENT-SECRET

[tiering]
jars = "/srv/sluice/jars"    # Iceberg's runtime, and iceberg-aws-bundle for S3
```

[catalogs](catalogs/README.md) has the settings for each catalog and store.

A setting is written in other places as follows:

- **Environment:** `SLUICE_DATALAKE_ICEBERG_WAREHOUSE`. In names of Iceberg and Fluss, `__` stands
  for a dot and `_` for a dash: `SLUICE_CLIENT_FS_S3__ACCESS_KEY`.
- **Spark job:** `spark.sluice.datalake.iceberg.warehouse`, as a Spark property.
- **Airflow:** cluster and lake are in the connection of type `fluss`
  ([airflow.md](airflow.md#connections)).

Names end with their unit. Sizes are bytes, times are milliseconds. `SLUICE_FAILPOINTS` is for tests
(`sluice/failpoints.py`).
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, section in get_type_hints(config.Config).items():
        summary = inspect.getdoc(section)
        assert summary, f"{section.__name__} has no docstring"
        parts.append(f"\n## [{name}]\n\n{summary}\n\n")
        parts.append("| key | type | default | what it is |\n| --- | --- | --- | --- |\n")
        parts.extend(_row(section, field) for field in fields(section))
    return "".join(parts)


def _row(section: Any, field: Field[Any]) -> str:
    hint = get_type_hints(section)[field.name]
    kind = {bool: "true or false", int: "whole number", str: "text"}.get(hint, "names and values")
    meaning = _meanings(section)[field.name].replace("|", "\\|")
    return f"| `{field.name}` | {kind} | {_default(field)} | {meaning} |\n"


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "none"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, int) and field.default >= 1_048_576 and "bytes" in field.name:
        return f"`{field.default}` ({field.default // 1_048_576} MiB)"
    return f"`{field.default}`" if field.default != "" else "empty"


def _meanings(section: Any) -> dict[str, str]:
    """The text below each field of a dataclass.

    :raises KeyError: later, for a field that has none.
    """
    body = ast.parse(inspect.getsource(section)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, follower in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(follower, ast.Expr)
            and isinstance(follower.value, ast.Constant)
        ):
            found[statement.target.id] = " ".join(str(follower.value.value).split())
    return found


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render(), "make config-docs"))
