"""Airflow's plugin for the page. Each process of Airflow imports it, so it loads nothing else."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

try:
    from airflow.sdk.plugins_manager import AirflowPlugin
except ImportError:  # Airflow 3.1
    from airflow.plugins_manager import AirflowPlugin

from sluice_airflow.page.routes import PREFIX, TAB

log = logging.getLogger(__name__)

NAME = "Lake tiering"
_ICON = "sluice/icon.svg"


class LakeTieringPlugin(AirflowPlugin):
    """Adds the page to the API server, to the navigation, and as a tab to the pages of DAGs.

    Nothing is loaded before the API server, or `airflow plugins`, reads ``fastapi_apps``. A page
    that cannot be loaded is left out and logged: Airflow works without it.
    """

    name = "sluice"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        try:
            from sluice_airflow.config.settings import page_is_on

            if not page_is_on():
                return []
            from sluice_airflow.page.app import airflow_app

            return [{"app": airflow_app(), "url_prefix": PREFIX, "name": "sluice"}]
        except Exception:
            log.exception("cannot load the page %r; Airflow starts without it", NAME)
            return []

    @cached_property
    def external_views(self) -> list[dict[str, Any]]:
        """The page's places in Airflow's pages. Their addresses are relative to Airflow's own."""
        if not self.fastapi_apps:
            return []
        return [
            {
                "name": NAME,
                "href": "sluice/",
                "destination": "nav",
                "category": "browse",
                "url_route": "lake-tiering",
                "icon": _ICON,
            },
            {
                "name": NAME,
                "href": "sluice/dags/{DAG_ID}/",
                "destination": "dag",
                "url_route": TAB,
                "icon": _ICON,
            },
        ]
