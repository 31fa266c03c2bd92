"""What Airflow reads to find providers. Imports nothing: a failure here breaks Airflow."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The provider as Airflow wants it: the connection type ``fluss``, the section [sluice]."""
    return {
        "package-name": "fluss-sluice",
        "name": "Sluice",
        "description": "Tiers Apache Fluss tables into a lakehouse with Spark.",
        "connection-types": [
            {
                "connection-type": "fluss",
                "hook-class-name": "sluice_airflow.hooks.fluss.FlussHook",
                "hook-name": "Apache Fluss",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "extra"],
                    "relabeling": {
                        "host": "Coordinator host",
                        "login": "User (SASL PLAIN, transport fluss only)",
                        "password": "Password, or bearer token (transport grpc)",
                    },
                    "placeholders": {"host": "localhost", "port": "9123"},
                },
                "conn-fields": FIELDS,
            }
        ],
        "config": {
            "sluice": {
                "description": "The DAG that tiers tables of Fluss into the lake.",
                "options": {name: _option(*option) for name, option in OPTIONS.items()},
            }
        },
    }


FIELDS: dict[str, Any] = {
    "transport": {
        "label": "Transport",
        "description": "How the cluster is spoken to: grpc, or fluss for Fluss's own protocol.",
        "schema": {"type": ["string", "null"], "enum": ["grpc", "fluss"], "default": "grpc"},
    },
    "deployment_id": {
        "label": "Deployment id",
        "description": "Tells two Airflows apart that tier one cluster; part of each lease id.",
        "schema": {"type": ["string", "null"], "default": "default"},
    },
    "work_uri": {
        "label": "Work folder",
        "description": "Folder for plans and results that Airflow and Spark both reach:"
        " file:///..., s3://...",
        "schema": {"type": ["string", "null"]},
    },
    "datalake": {
        "label": "Lake",
        "description": "Lake options in Fluss's own words, as a JSON object:"
        ' {"format": "iceberg", "iceberg.type": "hadoop", "iceberg.warehouse": "/data/lake"}',
        "schema": {"type": ["string", "null"]},
    },
    "tls": {
        "label": "TLS",
        "description": "With transport grpc: the server's certificate is from a public authority.",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
    "tls_ca": {
        "label": "TLS authority",
        "description": "With transport grpc: certificate of the authority that has signed the"
        " server's, as a PEM file or its text. TLS is on wherever it is given.",
        "schema": {"type": ["string", "null"]},
    },
    "fs": {
        "label": "Remote storage",
        "description": "How Fluss's remote storage is reached, where the cluster does not tell, in"
        ' the words of its client.fs.* options: {"s3.endpoint": "http://minio:9000"}',
        "schema": {"type": ["string", "null"]},
    },
}
"""The keys of a connection's extra."""

OPTIONS: dict[str, tuple[str, str, str]] = {
    "connection": ("string", "fluss_default", "Id of the connection of type fluss."),
    "schedule": (
        "string",
        "* * * * *",
        "When the DAG runs: a cron expression, or 'none' for runs by hand only.",
    ),
    "spark_connection": ("string", "spark_default", "Id of the connection of type spark."),
    "spark_binary": (
        "string",
        "",
        "spark-submit by another name or path; empty: from the PATH, or beside Airflow's Python.",
    ),
    "application": (
        "string",
        "",
        "The Spark driver's script; empty: the one of the installed package.",
    ),
    "py_files": (
        "string",
        "",
        "Zip for executors that do not have Sluice installed (sluice spark-files); else empty.",
    ),
    "packages": (
        "string",
        "auto",
        "spark.jars.packages; auto: Iceberg's runtime for the Spark that spark-submit starts,"
        " the newest if it does not tell its version; empty: none. Not used if jars is given.",
    ),
    "jars": ("string", "", "Iceberg's Spark runtime as files, for a Spark without network."),
    "pool": ("string", "default_pool", "Airflow pool of the tier tasks."),
    "pool_slots": (
        "integer",
        "0",
        "How many tier tasks the pool starts at once; 0: the smallest of core.parallelism,"
        " core.max_active_tasks_per_dag and core.default_pool_task_slot_count.",
    ),
    "tier_retries": ("integer", "1", "How often a failed tier task is tried again."),
    "tier_retry_delay_seconds": (
        "integer",
        "10",
        "Wait before that; under 60, or the coordinator takes the table back meanwhile.",
    ),
    "tier_timeout_seconds": ("integer", "3600", "Longest time of one try of a tier task."),
    "heartbeat_interval_seconds": (
        "integer",
        "20",
        "How often claims are confirmed; the coordinator takes them back after 120 s of silence.",
    ),
}
"""Name -> type, default, description; sluice_airflow.settings reads the defaults from here."""


def _option(kind: str, default: str, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": None,
        "default": default,
    }
