"""The program of ``iam_s3.IamS3``: moto behind the layer of sessions, on a free loopback port.

moto keeps all in variables of its modules, so each server has a process of its own.
"""

from __future__ import annotations

import logging
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.support.catalog_servers.sessions import SessionLayer


def main() -> None:
    """Serves until it is killed; the first argument is the file that receives the port."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    layer = SessionLayer(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, layer, threaded=True)
    with open(sys.argv[1], "w") as file:  # noqa: PTH123
        file.write(f"{server.server_port}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
