"""Airflow's API server without its other programs: `python page_server.py DAGS.py`.

It writes the DAGs to the database, then its port and the page's routes to its output, and ends with
its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import uvicorn


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Airflow prints goes to the log
    from airflow.api_fastapi.app import create_app

    from sluice.page.cluster import cluster_reader
    from sluice.wire.listeners.http_places import bound_socket
    from sluice_airflow.page import clusters
    from tests.airflow.worker import load_all

    cluster_reader.READ_EVERY_S = 0.2
    clusters.KEPT_S = 1.0
    load_all(sys.argv[1])
    app = create_app("core")
    [page] = [one for one in app.routes if getattr(one, "path", "") == "/sluice"]
    routes = [
        {"name": one.name, "path": one.path, "methods": sorted(getattr(one, "methods", None) or ())}
        for one in page.app.routes
    ]
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    with bound_socket("127.0.0.1", 0) as listener:
        answers.write(f"{listener.getsockname()[1]}\n{json.dumps(routes)}\n")
        answers.flush()
        server.run([listener])


if __name__ == "__main__":
    main()
