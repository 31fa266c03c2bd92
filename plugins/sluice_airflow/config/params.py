"""The parameters of a run of a DAG, which Airflow checks and shows as a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param

TABLES_MAX = 10_000
PATTERNS_MAX = 1000
ALL_TABLES = ("*",)


def run_params(
    tables: Sequence[str] = ALL_TABLES,
    max_tables: int = TABLES_MAX,
    spark_conf: Mapping[str, Any] | None = None,
) -> dict[str, Param]:
    """Returns the parameters of a run that tiers tables, with these defaults.

    The form marks a parameter as required if its type has no null.
    """
    return {
        "tables": _tables(
            tables,
            " A pattern tiers only tables that are due. A table with its exact name is tiered now,"
            " up to its end.",
        ),
        "wait": Param(
            False,
            type=["boolean", "null"],
            title="Wait",
            description="Tier everything that was written before the trigger, also of tables that"
            " are not due, with as many rounds as that takes. The run fails if that is not"
            " possible.",
        ),
        "force": Param(
            False,
            type=["boolean", "null"],
            title="Force",
            description="Tier also tables that are not due, with one round each. Wait includes it.",
        ),
        "dry_run": _dry_run("Tier nothing. The log of drop_lease says what the run would tier."),
        "spark_conf": _spark_conf(spark_conf, "every driver"),
        "max_tables": Param(
            max_tables,
            type="integer",
            minimum=1,
            maximum=TABLES_MAX,
            title="Maximum number of tables",
            description="The run claims no more tables than this.",
        ),
    }


def maintenance_params(
    tables: Sequence[str] = ALL_TABLES, spark_conf: Mapping[str, Any] | None = None
) -> dict[str, Param]:
    """Returns the parameters of a run that maintains tables, with these defaults."""
    return {
        "tables": _tables(tables, ""),
        "dry_run": _dry_run("Change nothing. The log says what each table needs."),
        "spark_conf": _spark_conf(spark_conf, "the driver"),
    }


def _tables(tables: Sequence[str], more: str) -> Param:
    return Param(
        list(tables),
        type="array",
        items={"type": "string", "minLength": 1, "maxLength": 401},
        minItems=1,
        maxItems=PATTERNS_MAX,
        title="Tables",
        description=f"One a line: names or patterns, such as sales.orders, sales.* or *.{more}",
    )


def _dry_run(description: str) -> Param:
    return Param(False, type=["boolean", "null"], title="Dry run", description=description)


def _spark_conf(spark_conf: Mapping[str, Any] | None, whose: str) -> Param:
    return Param(
        dict(spark_conf or {}),
        type=["object", "null"],
        propertyNames={"pattern": "^spark\\."},
        additionalProperties={"type": ["string", "number", "boolean"]},
        title="Spark properties",
        description=f"Spark properties of {whose} of the run, such as"
        ' {"spark.executor.memory": "2g"}. Lake options of the Fluss connection override them.',
    )
