"""The servers of `make demo CATALOG=rest`: an S3 that checks keys, and a catalog that vends them.

``python -m demo.rest_servers FOLDER`` prints the options of clients as JSON once both answer, and
runs until it is stopped. The options have no keys. All data is in memory.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from sluice.errors import SluiceError
from sluice.stop_signals import StopSignals
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalog_servers.nessie import nessie

KEYS_LIVE_S = 900
"""The shortest life that AWS gives to keys of a session."""


def main(folder: str) -> None:
    """Runs both servers, with their files in a new folder."""
    Path(folder).mkdir(mode=0o700)
    tempfile.tempdir = folder
    end = StopSignals()
    try:
        with IamS3() as store, nessie(store, vended_life_s=KEYS_LIVE_S) as catalog:
            print(json.dumps(catalog.options), flush=True)  # noqa: T201
            end.wait()
    except SluiceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
