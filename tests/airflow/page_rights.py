"""People of an Airflow whose rights differ by DAG, as with most of its auth managers."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

CLERK, EDITOR = "clerk", "editor"
RIGHTS = {
    CLERK: {"sales": {"GET", "PUT", "POST"}, "rendered": {"GET", "PUT", "POST"}},
    EDITOR: {"sales": {"GET", "PUT"}, "tiering": {"GET"}},
}
"""By user: the DAGs that they know, and what they may do. POST is of runs. Others: by role."""


class RightsByDag(SimpleAuthManager):
    """Airflow's simple auth manager, with :data:`RIGHTS` over its roles."""

    def is_authorized_dag(
        self,
        *,
        method: Any,
        user: Any,
        access_entity: DagAccessEntity | None = None,
        details: Any = None,
    ) -> bool:
        allowed = super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )
        if not allowed or user.get_name() not in RIGHTS or details is None or details.id is None:
            return bool(allowed)
        return str(method) in RIGHTS[user.get_name()].get(details.id, ())
