"""A secrets backend of Airflow that knows nothing, and waits as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.secrets import BaseSecretsBackend


class Waiting(BaseSecretsBackend):
    before: Callable[[], None] = staticmethod(lambda: None)

    def get_connection(self, conn_id: str, **more: Any) -> None:
        """It knows none, so the environment is asked next."""
        Waiting.before()

    def get_config(self, key: str) -> None:
        return None
