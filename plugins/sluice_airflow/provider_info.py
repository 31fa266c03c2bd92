"""Describes the provider to Airflow. Imports nothing, because a failure here breaks Airflow."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Returns the connection type ``fluss`` and the section [sluice], in Airflow's own form."""
    return {
        "package-name": "fluss-sluice",
        "name": "Sluice",
        "description": "Tiers Apache Fluss tables into a lakehouse with Spark.",
        "integrations": [
            {
                "integration-name": "Apache Fluss",
                "external-doc-url": "https://fluss.apache.org/",
                "tags": ["apache"],
            }
        ],
        "operators": [
            _modules(
                "operators",
                "open",
                "acquire",
                "keep",
                "tier",
                "check",
                "settle",
                "drop",
                "maintain",
            )
        ],
        "sensors": [_modules("sensors", "table")],
        "hooks": [_modules("hooks", "fluss")],
        "triggers": [_modules("triggers", "keep", "table")],
        "extra-links": [
            f"sluice_airflow.outcomes.links.{name}"
            for name in ("SparkApplicationLink", "LakeTableLink", "HealthLink")
        ],
        "asset-uris": [
            {"schemes": ["sluice"], "handler": "sluice_airflow.assets.check_uri"},
        ],
        "connection-types": [
            {
                "connection-type": "fluss",
                "hook-class-name": "sluice_airflow.hooks.fluss.FlussHook",
                "hook-name": "Apache Fluss",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "extra"],
                    "relabeling": {
                        "host": "Coordinator host",
                        "login": "User",
                        "password": "Password or token",
                    },
                    "placeholders": {
                        "host": "localhost",
                        "port": "9123",
                        "login": "SASL user; with transport fluss only",
                        "password": "SASL password (fluss) or bearer token (grpc)",
                    },
                },
                "conn-fields": FIELDS,
            }
        ],
        "config": {
            "sluice": {
                "description": "Settings of the DAGs that tier Fluss tables into the lake and"
                " maintain its tables.",
                "options": {name: _option(*option) for name, option in OPTIONS.items()},
            }
        },
    }


def _modules(kind: str, *names: str) -> dict[str, Any]:
    modules = [f"sluice_airflow.{kind}.{name}" for name in names]
    return {"integration-name": "Apache Fluss", "python-modules": modules}


FIELDS: dict[str, Any] = {
    "transport": {
        "label": "Transport",
        "description": "fluss for an Apache Fluss cluster, grpc for Sluice's embedded server.",
        "schema": {"type": ["string", "null"], "enum": ["grpc", "fluss"], "default": "grpc"},
    },
    "work_uri": {
        "label": "Work folder",
        "description": "Required for the DAG. Folder for plans and results that Airflow and Spark"
        " can both write, such as file:///srv/sluice/work or s3://bucket/sluice.",
        "schema": {"type": ["string", "null"]},
    },
    "datalake": {
        "label": "Lake",
        "description": "Required for the DAG, unless Spark has them. Options of the lake as a JSON"
        ' object, named as in Fluss without "datalake.": {"format": "iceberg", "iceberg.type":'
        ' "hadoop", "iceberg.warehouse": "/data/lake"}. Passwords and keys among them stay secret.',
        "schema": {"type": ["string", "null"]},
    },
    "deployment_id": {
        "label": "Deployment id",
        "description": "Optional. Name of this Airflow, unique among all that tier the same"
        " cluster. Empty: the first run makes one, the Airflow Variable sluice_deployment_id.",
        "schema": {"type": ["string", "null"]},
    },
    "tls": {
        "label": "TLS",
        "description": "With transport grpc: use TLS, if a public authority signed the server's"
        " certificate. Transport fluss has no TLS.",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
    "tls_ca": {
        "label": "TLS CA certificate",
        "description": "With transport grpc: use TLS, if an authority of your own signed the"
        " server's certificate. The path of its PEM file, or the text. Then leave TLS off.",
        "schema": {"type": ["string", "null"]},
    },
    "fs": {
        "label": "Remote storage",
        "description": "Optional: only if the cluster does not send them. Options for reading"
        ' Fluss\'s remote storage as a JSON object, named as in Fluss without "client.fs.":'
        ' {"s3.endpoint": "http://minio:9000"}',
        "schema": {"type": ["string", "null"]},
    },
}
"""The keys of a connection's extra."""

OPTIONS: dict[str, tuple[str, str, str]] = {
    "connection": (
        "string",
        "fluss_default",
        "Id of the Airflow connection (type fluss) to the cluster.",
    ),
    "schedule": (
        "string",
        "* * * * *",
        "When the DAG runs: a cron expression, or 'none' for manual runs only.",
    ),
    "spark_connection": (
        "string",
        "spark_default",
        "Id of the Airflow connection (type spark).",
    ),
    "spark_binary": (
        "string",
        "",
        "Name or path of spark-submit. Empty: spark-submit on the PATH, else next to Airflow's"
        " Python.",
    ),
    "application": (
        "string",
        "",
        "Path or URI of the Spark driver's script. Empty: the script in the installed package."
        " maintain_tables.py, the script of the maintenance, must be beside it.",
    ),
    "py_files": (
        "string",
        "",
        "Zip of Sluice for executors that do not have it installed; `sluice spark-files` makes one."
        " Empty: no zip is sent.",
    ),
    "packages": (
        "string",
        "auto",
        "Maven coordinates of Iceberg's Spark runtime (spark.jars.packages). auto: the runtime for"
        " the Spark version of spark-submit, or the newest if the version is unknown; as a file if"
        " this machine has it. Empty: none. Ignored if jars is set.",
    ),
    "jars": (
        "string",
        "",
        "Jar files of Iceberg's Spark runtime, separated by commas, for a Spark without network"
        " access.",
    ),
    "pool": ("string", "default_pool", "Airflow pool in which the tier tasks run."),
    "pool_slots": (
        "integer",
        "0",
        "Number of tier tasks that the pool runs at once. A run has no more Spark applications than"
        " that. 0: the smallest of core.parallelism,"
        " core.max_active_tasks_per_dag and core.default_pool_task_slot_count.",
    ),
    "tables_per_application": (
        "integer",
        "100",
        "Largest number of tables that share one Spark application. If a run needs more"
        " applications than the pool has slots, they get more tables. 1: each table has its own.",
    ),
    "rows_per_application": (
        "integer",
        "5000000",
        "Largest number of waiting rows in the tables that share one Spark application. A table"
        " with more rows has its own.",
    ),
    "tier_retries": ("integer", "1", "Number of retries of a failed tier task."),
    "tier_retry_delay_seconds": (
        "integer",
        "10",
        "Seconds before a failed tier task is retried. Without a triggerer, keep it below 60, or"
        " the coordinator may assign the table to another worker in the meantime.",
    ),
    "tier_timeout_seconds": (
        "integer",
        "3600",
        "Maximum duration of one try of a tier task, in seconds. 0: no limit. A large round gets"
        " more: 500 s per GB of KV snapshots, 100 s per million log offsets of scanned buckets, up"
        " to the freshness for logs.",
    ),
    "heartbeat_interval_seconds": (
        "integer",
        "20",
        "Seconds between two heartbeats of a claim, or fewer if the coordinator needs more of them."
        " It ends a claim after 120 s without a heartbeat, unless the embedded server has another"
        " server.tiering_timeout_ms.",
    ),
    "spark_history_url": (
        "string",
        "",
        "Address of Spark's history server, such as https://spark.example:18080. The tier tasks"
        " link their Spark application there. Empty: only to Spark's UI, while it runs.",
    ),
    "lake_table_url": (
        "string",
        "",
        "Address of the page of a lake table, in your catalog for instance. {database}, {table} and"
        " {snapshot_id} are replaced. The tier tasks link to it. Empty: no link.",
    ),
    "health_url": (
        "string",
        "",
        "Address of a page that shows the health of a table, such as a dashboard of Grafana."
        " {database} and {table} are replaced. The tier tasks link to it. Empty: no link.",
    ),
    "maintenance_schedule": (
        "string",
        "@daily",
        "When the DAG of the maintenance runs: a cron expression, or 'none' for manual runs only.",
    ),
    "maintenance_retries": (
        "integer",
        "1",
        "Number of retries of a failed maintenance. A retry maintains what had a problem.",
    ),
    "maintenance_timeout_seconds": (
        "integer",
        "21600",
        "Maximum duration of one try of a maintenance, in seconds. 0: no limit. The next try"
        " continues with the tables that are not done.",
    ),
    "page": (
        "boolean",
        "True",
        "Whether Airflow's navigation and the pages of DAGs have the page 'Lake tiering'.",
    ),
}
"""Name -> type, default, description; ``config/settings.py`` reads the defaults here."""


def _option(kind: str, default: str, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": None,
        "default": default,
    }
