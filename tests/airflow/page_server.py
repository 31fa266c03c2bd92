"""Airflow's API server without its other programs: `python page_server.py DAGS.py`.

It writes the DAGs to the database, then its port to its output, and ends with its input.
"""

from __future__ import annotations

import os
import sys
import threading

import uvicorn


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Airflow prints goes to the log
    from airflow.api_fastapi.app import create_app

    from sluice.page import cluster_reader
    from sluice.wire.http_places import bound_socket
    from sluice_airflow.page import clusters
    from tests.airflow.worker import load_all

    cluster_reader.READ_EVERY_S = 0.2
    clusters.KEPT_S = 1.0
    load_all(sys.argv[1])
    server = uvicorn.Server(uvicorn.Config(create_app("core"), log_level="warning"))

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    with bound_socket("127.0.0.1", 0) as listener:
        answers.write(f"{listener.getsockname()[1]}\n")
        answers.flush()
        server.run([listener])


if __name__ == "__main__":
    main()
