"""The gauges of tables: one for each field of a status that is described as a gauge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from sluice.model import TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.statuses import UNKNOWN, State

_TABLE = ("database", "table")
_STATES = (*(state.value for state in State), UNKNOWN)


def table_gauges(statuses: Sequence[TieringStatus]) -> Iterator[Metric]:
    """The state and all gauges of these tables; an unknown value has no sample."""
    yield _states(statuses)
    for field in fields_of(TieringStatus):
        if not field.gauge:
            continue
        gauge = GaugeMetricFamily(gauge_name(field), f"{field.comment}.", labels=_TABLE)
        for status in statuses:
            value = getattr(status, field.name)
            if value is not None:
                seconds = field.is_time or field.is_duration
                number = value / 1000 if seconds else float(value)
                gauge.add_metric([status.path.database, status.path.table], number)
        yield gauge


def gauge_name(field: RecordField) -> str:
    """The metric of a field, with Prometheus's units in place of milliseconds."""
    name = f"sluice_table_{field.name}"
    if field.is_time:
        return f"{name.removesuffix('_ms')}_timestamp_seconds"
    return f"{name.removesuffix('_ms')}_seconds" if field.is_duration else name


def _states(statuses: Sequence[TieringStatus]) -> GaugeMetricFamily:
    """1 for the state that a table is in, 0 for the others."""
    gauge = GaugeMetricFamily(
        "sluice_table_state",
        "1 for the current tiering state of a table.",
        labels=(*_TABLE, "state"),
    )
    for status in statuses:
        for state in _STATES:
            labels = [status.path.database, status.path.table, state]
            gauge.add_metric(labels, float(status.status == state))
    return gauge
