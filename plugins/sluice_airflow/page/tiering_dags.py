"""The DAGs that tier lake tables, as Airflow's database has them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.model import TablePath
from sluice.model.patterns import TablePatterns
from sluice_airflow.config.rendered import tables_given
from sluice_airflow.config.settings import load_settings

KEPT_S = 30.0
"""After so long, a DAG that is new or has changed is noticed."""
_ROWS_AT_ONCE = 50
"""DAGs whose definitions are in memory at the same time."""
NAMED_MAX = 5
"""Most patterns that an error names."""
ACQUIRES = frozenset({"fluss_conn_id", "tier_task_id"})
"""What the serialized SluiceAcquireOperator has, or that of a subclass."""


@dataclass(frozen=True, slots=True)
class TieringDag:
    """A DAG that tiers tables of one cluster."""

    dag_id: str
    connection_id: str
    patterns: tuple[str, ...] | None
    """Names and patterns of the tables that it tiers, unless the conf of a run names others. None:
    a template decides."""
    takes_tables: bool
    """Whether the conf of a run may name its tables."""
    spark_history_url: str
    lake_table_url: str
    health_url: str
    _matcher: TablePatterns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once: a page of tables asks of each one, and a DAG may name thousands.
        object.__setattr__(self, "_matcher", TablePatterns(self.patterns or ()))

    @property
    def tiers_all(self) -> bool:
        """Whether it tiers every table of its cluster."""
        return any(set(one) == {"*"} or one == "*.*" for one in self.patterns or ())

    def why_not(self, path: TablePath) -> str | None:
        """Why its page does not act on a table; None: it does."""
        if self.patterns is None:
            return (
                f"only a run of DAG {self.dag_id} knows which tables it tiers, so its page acts on"
                " none: its argument `tables` is a template"
            )
        if self._matcher.matches(path):
            return None
        more = len(self.patterns) - NAMED_MAX
        named = ", ".join(self.patterns[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        return (
            f"DAG {self.dag_id} does not tier table {path}, but {named}: act on the page of a DAG"
            " that tiers it"
        )


class TieringDags:
    """Finds the DAGs that tier. Safe for use by many threads.

    It reads the definition of a DAG once, and again only if its hash has changed.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # one thread at a time reads the database
        self._known: dict[str, tuple[str, TieringDag | None]] = {}
        """By DAG id: the hash of its definition, and what it says."""
        self._tiering: dict[str, TieringDag] | None = None
        self._read_s = 0.0

    def all(self) -> Mapping[str, TieringDag]:
        """The DAGs that tier, by their ids, in the order of these.

        While one thread reads them again, the others get what was known before.
        """
        found, now_s = self._tiering, self._clock.monotonic_s()
        if found is not None and now_s - self._read_s < KEPT_S:
            return found
        if not self._lock.acquire(blocking=found is None):
            assert found is not None
            return found
        try:
            if self._tiering is None or now_s - self._read_s >= KEPT_S:
                with create_session(scoped=False) as session:
                    self._known = self._read(session)
                found = {id_: dag for id_, (_, dag) in sorted(self._known.items()) if dag}
                self._tiering, self._read_s = found, self._clock.monotonic_s()
            return self._tiering
        finally:
            self._lock.release()

    def _read(self, session: Session) -> dict[str, tuple[str, TieringDag | None]]:
        newest = dict(_newest(session))
        changed = [
            row_id
            for dag_id, (row_id, dag_hash) in newest.items()
            if self._known.get(dag_id, ("",))[0] != dag_hash
        ]
        found = {id_: known for id_, known in self._known.items() if id_ in newest}
        for at in range(0, len(changed), _ROWS_AT_ONCE):
            some = changed[at : at + _ROWS_AT_ONCE]
            chosen = select(SerializedDagModel).where(SerializedDagModel.id.in_(some))
            for row in session.scalars(chosen):
                found[row.dag_id] = (row.dag_hash, _tiering_dag(row.dag_id, row.data or {}))
            session.expunge_all()
        return found


def _newest(session: Session) -> Iterator[tuple[str, tuple[Any, str]]]:
    """DAG id, and the id and the hash of its newest definition."""
    model = SerializedDagModel
    newest = (
        select(model.dag_id, func.max(model.created_at).label("created_at"))
        .group_by(model.dag_id)
        .subquery()
    )
    is_newest = and_(
        model.dag_id == newest.c.dag_id,
        model.created_at == newest.c.created_at,
    )
    rows = (
        select(model.dag_id, model.id, model.dag_hash)
        .join(newest, is_newest)
        .join(DagModel, DagModel.dag_id == model.dag_id)
        .where(DagModel.is_stale.is_(False))
    )
    for dag_id, row_id, dag_hash in session.execute(rows):
        yield dag_id, (row_id, dag_hash)


def _tiering_dag(dag_id: str, definition: Mapping[str, Any]) -> TieringDag | None:
    """What a serialized DAG says of its tiering; None: it tiers nothing."""
    tasks: list[dict[str, Any]] = [
        one.get("__var", one) for one in definition.get("dag", {}).get("tasks", [])
    ]
    acquires = [task for task in tasks if task.keys() >= ACQUIRES]
    if not acquires:
        return None
    acquire = acquires[0]
    tier = next((task for task in tasks if task["task_id"] == acquire["tier_task_id"]), {})
    settings = load_settings()

    def address(name: str) -> str:
        return str(tier.get(name, getattr(settings, name)))

    return TieringDag(
        dag_id,
        connection_id=str(acquire["fluss_conn_id"]),
        patterns=_patterns(
            one.get("tables")
            for one in acquires
            if one["fluss_conn_id"] == acquire["fluss_conn_id"]
        ),
        takes_tables="tables" in (acquire.get("conf_keys") or ()),
        spark_history_url=address("spark_history_url"),
        lake_table_url=address("lake_table_url"),
        health_url=address("health_url"),
    )


def _patterns(given: Iterable[Any]) -> tuple[str, ...] | None:
    """The names and patterns of the argument `tables`, as serialized, of each task that claims."""
    found: list[str] = []
    for tables in given:
        value = tables.get("default") if isinstance(tables, Mapping) else tables
        if isinstance(value, str) and ("{{" in value or "{%" in value):
            return None
        try:
            found += tables_given(value)
        except ConfigurationError:  # it fails in each run, too
            return None
    return tuple(found)
