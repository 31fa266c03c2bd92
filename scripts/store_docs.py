"""Writes docs/catalogs/store-options.md from the tables of ``sluice/storage``.

``python -m scripts.store_docs`` writes it, ``--check`` compares and fails if it is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.written_page import write_or_check
from sluice.storage.gcs import GCS_TABLE
from sluice.storage.options.azure import AZURE_TABLE
from sluice.storage.options.rules import Ignored, Passed, Refused, Rule
from sluice.storage.options.s3 import S3_TABLE

TARGET = Path(__file__).resolve().parent.parent / "docs" / "catalogs" / "store-options.md"
INTRODUCTION = """\
# Options of stores

`scripts/store_docs.py` writes this page from the tables of `sluice/storage`.

Two clients read and write the files of a lake table: Iceberg's own in the JVM, and pyarrow. Both
get the same options, under Iceberg's or Hadoop's names. They come from the catalog, with the
table, and from `datalake.iceberg.*`. Where both set an option, pyarrow takes that of
`datalake.iceberg.*`. Iceberg's client takes that of the catalog, if it is a REST catalog. A round
creates no table before each client has read a file of the other one. This page says what pyarrow
does with each option:

- **passed**: it sets an argument of pyarrow's file system.
- **refused**: pyarrow would store, read or delete files otherwise than the option asks. The round
  ends with an error that names the option.
- **ignored**: the option concerns Iceberg's client alone, or pyarrow needs no setting for it.

A name that ends with `*` stands for all options that begin so. `HOST` is the host of an Azure
storage account, such as `account.dfs.core.windows.net`, or the account's name.

Write `hadoop.` before Hadoop's names (`fs.*`, `google.cloud.*`): `hadoop.fs.s3a.endpoint`.
Without it pyarrow gets them, but not Hadoop's own clients. Iceberg ignores options that it does
not know, and so does Sluice. Sluice warns of one that looks misspelt.
"""
_S3 = """\
For `s3://`, `s3a://` and `s3n://`. Keys, region and endpoint that no option sets come from the
environment, as with AWS's clients: variables, profile, web identity, the role of a container or
machine. Also refused are

- `client.assume-role.arn` without `client.factory`: Iceberg's client would not assume the role;
- SSE-S3 at a store that is not AWS's: pyarrow cannot ask for it. AWS does it without being asked.
"""
_GCS = """\
For `gs://`. Without an option, pyarrow uses Google's Application Default Credentials.
`fs.gs.auth.type` is refused if it asks for anything but these, or `UNAUTHENTICATED`.
`gcs.no-auth=true` together with `gcs.oauth2.token` is refused.
"""
_AZURE = """\
For `abfs://`, `abfss://`, `wasb://` and `wasbs://`. Without an option, pyarrow uses Azure's
`DefaultAzureCredential`. SAS tokens need pyarrow 20, the sign-in of applications pyarrow 21.
"""
_STORES: dict[str, tuple[str, Mapping[str, Rule]]] = {
    "S3": (_S3, S3_TABLE),
    "Google Cloud Storage": (_GCS, GCS_TABLE),
    "Azure Data Lake Storage": (_AZURE, AZURE_TABLE),
}
_WHEN = {
    "is_set": "any",
    "is_on": "`true`",
    "_is_off": "`false`",
    "_is_other_encryption": "all but `none` and SSE-S3",
    "_is_other_class": "all but `STANDARD`",
    "_is_lake_formation": "a class of Lake Formation",
    "_is_foreign": "a class that is not one of AWS's or Hadoop's usual ones",
    "_is_other_key_file": "a file that `GOOGLE_APPLICATION_CREDENTIALS` does not name",
    "_pays": "all but `DISABLED`",
    "_is_other_auth": "all but `SharedKey`, `OAuth` and `SAS`",
    "_is_other_provider": "all but Hadoop's `ClientCredsTokenProvider`, `MsiTokenProvider` and"
    " `WorkloadIdentityTokenProvider`",
}
"""Which values are refused, by the function that decides it."""


def render() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(
        f"\n## {store}\n\n{about}" + "".join(_tables(table))
        for store, (about, table) in _STORES.items()
    )


def _tables(table: Mapping[str, Rule]) -> Iterator[str]:
    yield "\n| passed | pyarrow's argument |\n| --- | --- |\n"
    for name, rule in table.items():
        if isinstance(rule, Passed):
            yield f"| `{_shown(name)}` | `{rule.argument}` |\n"
    yield "\n| refused | values | why, and what to do |\n| --- | --- | --- |\n"
    for name, rule in table.items():
        if isinstance(rule, Refused):
            yield f"| `{_shown(name)}` | {_values(rule)} | {_cell(rule.why)} |\n"
    yield "\n| ignored | why |\n| --- | --- |\n"
    for name, rule in table.items():
        if isinstance(rule, Ignored):
            yield f"| `{_shown(name)}` | {_cell(rule.why)} |\n"


def _shown(name: str) -> str:
    return f"{name}*" if name.endswith(".") else name


def _values(rule: Refused) -> str:
    """:raises KeyError: this page has no words for the function that decides it."""
    unless = ", unless keys or tokens are set" if rule.unless else ""
    return _WHEN[rule.when.__name__] + unless


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render(), "make config-docs"))
