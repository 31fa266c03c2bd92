"""Lists the deliberate differences between the fields of answers, with reasons.

Each is what :func:`tests.conformance.answer_fields.differences` returns for a question of
a scenario ``fields_of_...``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.conformance.difference import CLEARER, FENCED, LOOKED_AT, Difference

LATER = "a field that Fluss has after 0.9.1; clients of 0.9.1 skip it"
OWN = "a field of Sluice's own, which Fluss's clients skip"
SAME_OF_BOTH = "Fluss's tablet servers add the lake's options here, its coordinator does not"
CHECKED = (
    "the embedded server checks the CRC of a KV batch; Fluss 0.9.1 stores a damaged one"
    " (docs/fluss/known-problems.md#damaged-kv-batches)"
)
CALLS = (
    "the embedded server has no access lists (1039 to 1041), no settings to change at run time"
    " (1046), one server (1043, 1047 to 1051), and makes calls between its servers within the"
    " process; it has calls and versions of 1.0, and its own"
)
REMOTE = ("+ bucket_count_epoch: int64", "+ remote_data_dir: string")
DATA = tuple(f"+ table_metadata[].{line[2:]}" for line in REMOTE)
COUNT = "+ partition_metadata[].bucket_count: int32"
LAKE = tuple(
    f"+ table_metadata[].table_json.properties.table.datalake.iceberg.{name}: string"
    for name in ("type", "warehouse")
)
ROLES = ("coordinator", "tablet")


def _of_both(questions: Iterable[str]) -> Iterator[str]:
    for question in questions:
        for role in ROLES:
            yield f"{question}, of the {role}"


def _same(
    scenario: str, api: str, questions: Iterable[str], lines: tuple[str, ...], reason: str
) -> dict[tuple[str, str], Difference]:
    """One difference of several questions about a call."""
    known = Difference(lines, reason)
    return {(scenario, f"{api}, {question}"): known for question in questions}


_TABLES = (
    "plain",
    "commented",
    "keyed",
    "types",
    "nested",
    "first_rows",
    "lake",
    "an altered one",
)
_HEARTBEATS = (
    "of nothing",
    "of a round",
    "of a stale round",
    "of a stale coordinator",
    "of a missing table",
    "of a finished round of a missing table",
    "of a stale finish",
    "of a stale failure",
    "of a failed round",
    "of a failed round again",
    "of a finished round",
    "that gets a table",
    "that gets none",
)

FIELDS: dict[tuple[str, str], Difference] = {
    **_same(
        "fields_of_servers",
        "ApiVersions",
        _of_both(["as the Java client"]),
        ("+ server_version: string",),
        OWN,
    ),
    ("fields_of_servers", "calls of the coordinator"): Difference(
        (
            *(f"- {key}: 0 to 0" for key in (1020, 1022, 1024, 1027, 1039, 1040, 1041, 1043, 1044)),
            *(f"- {key}: 0 to 0" for key in range(1046, 1052)),
            *(f"+ {key}: 0 to 1" for key in (1024, 1044)),
            *(f"+ {key}: 0 to 0" for key in (1060, 1062, 1063, 1064, *range(2001, 2008))),
        ),
        CALLS,
    ),
    ("fields_of_servers", "calls of the tablet"): Difference(
        (
            *(f"- {key}: 0 to 0" for key in (1013, 1014)),
            "- 1016: 0 to 1",
            *(f"- {key}: 0 to 0" for key in (1018, 1019, 1024, 1028, 1029, 1031, 1040)),
            "+ 1014: 0 to 1",
            "+ 1016: 0 to 3",
            "+ 1024: 0 to 1",
            *(f"+ {key}: 0 to 0" for key in (1061, 1062, 2001)),
        ),
        CALLS,
    ),
    **_same(
        "fields_of_tables",
        "GetTableInfo",
        _of_both(f"of {table}" for table in _TABLES),
        REMOTE,
        LATER,
    ),
    **_same(
        "fields_of_tables",
        "GetMetadata",
        _of_both(f"of {table}" for table in ("plain", "keyed", "types")),
        DATA,
        LATER,
    ),
    ("fields_of_tables", "GetMetadata, of lake, of the coordinator"): Difference(
        (*DATA, *LAKE), SAME_OF_BOTH
    ),
    ("fields_of_tables", "GetMetadata, of lake, of the tablet"): Difference(DATA, LATER),
    **_same(
        "fields_of_tables",
        "GetMetadata",
        _of_both(["of missing"]),
        ("- error: UnknownServerError", "+ error: TableNotExist"),
        CLEARER,
    ),
    ("fields_of_tables", "CreateTable, of an aggregated table"): Difference(
        ("- nothing", "+ error: InvalidTable"),
        "the embedded server has the merge engines first_row and versioned only",
    ),
    ("fields_of_tables", "GetTableSchema, of missing"): Difference(
        ("- error: SchemaNotExist", "+ error: TableNotExist"),
        "the error names the missing table, not its schema",
    ),
    ("fields_of_tables", "AlterTable, a column dropped"): Difference(
        ("- error: UnknownServerError", "+ error: InvalidAlterTable"), CLEARER
    ),
    **_same(
        "fields_of_partitions",
        "ListPartitionInfos",
        ("of two", "of one of them"),
        ("+ partitions_info[].bucket_count: int32", "+ partitions_info[].remote_data_dir: string"),
        LATER,
    ),
    ("fields_of_partitions", "ListPartitionInfos, by another key"): Difference(
        ("- error: UnknownServerError", "+ error: PartitionSpecInvalid"), CLEARER
    ),
    (
        "fields_of_partitions",
        "GetMetadata, of a partitioned table, of the coordinator",
    ): Difference((*DATA, *LAKE), SAME_OF_BOTH),
    ("fields_of_partitions", "GetMetadata, of a partitioned table, of the tablet"): Difference(
        DATA, LATER
    ),
    (
        "fields_of_partitions",
        "GetMetadata, of partitions by id, of the coordinator",
    ): Difference((COUNT, *DATA, *LAKE), SAME_OF_BOTH),
    ("fields_of_partitions", "GetMetadata, of partitions by id, of the tablet"): Difference(
        (COUNT, *DATA), LATER
    ),
    **_same(
        "fields_of_partitions",
        "GetMetadata",
        _of_both(["of a partition by path"]),
        (COUNT,),
        LATER,
    ),
    ("fields_of_logs", "FetchLog, projected to no column"): Difference(
        (
            "- tables_resp[].buckets_resp[].error_code: UnknownServerError",
            "+ tables_resp[].buckets_resp[].error_code: InvalidColumnProjection",
        ),
        CLEARER,
    ),
    ("fields_of_keyed_rows", "PutKv, of a damaged batch"): Difference(
        (
            "- buckets_resp[].log_end_offset: int64",
            "+ buckets_resp[].error_code: CorruptRecord",
            "+ buckets_resp[].error_message: string",
        ),
        CHECKED,
    ),
    ("fields_of_keyed_rows", "Lookup, of no key, which would be inserted"): Difference(
        (
            "- buckets_resp[].error_code: UnknownServerError",
            "+ buckets_resp[].error_code: CorruptRecord",
        ),
        CLEARER,
    ),
    ("fields_of_partition_snapshots", "Lookup, in a partition, which inserts"): Difference(
        (
            "- buckets_resp[].error_code: UnknownServerError",
            "+ buckets_resp[].error_code: InvalidTargetColumn",
        ),
        CLEARER,
    ),
    ("fields_of_keyed_rows", "GetTableStats, of a keyed table without a count"): Difference(
        (
            "- buckets_resp[].bucket_id: int32",
            "- buckets_resp[].error_code: InvalidTable",
            "- buckets_resp[].error_message: string",
            "+ buckets_resp[1].bucket_id: int32",
            "+ buckets_resp[1].error_code: InvalidTable",
            "+ buckets_resp[1].error_message: string",
            "+ buckets_resp[2].bucket_id: int32",
            "+ buckets_resp[2].row_count: int64",
        ),
        "the embedded server counts the rows of a bucket without rows in any case",
    ),
    ("fields_of_kv_snapshots", "AcquireKvSnapshotLease, of no snapshot"): Difference(
        (
            "- nothing",
            "+ unavailable_snapshots[].bucket_snapshots[].bucket_id: int32",
            "+ unavailable_snapshots[].bucket_snapshots[].snapshot_id: int64",
            "+ unavailable_snapshots[].table_id: int64",
        ),
        LOOKED_AT,
    ),
    (
        "fields_of_partition_snapshots",
        "GetLatestKvSnapshots, of a missing partition",
    ): Difference(("- error: UnknownServerError", "+ error: PartitionNotExists"), CLEARER),
    **_same(
        "fields_of_tiering",
        "LakeTieringHeartbeat",
        _HEARTBEATS,
        ("+ claim_timeout_ms: int64",),
        OWN,
    ),
    ("fields_of_tiering", "CommitLakeTableSnapshot, of a missing table"): Difference(
        (
            "+ table_resp[].error_code: TableNotExist",
            "+ table_resp[].error_message: string",
        ),
        FENCED,
    ),
    ("fields_of_tiering", "PrepareLakeTableSnapshot, of a missing table"): Difference(
        (
            "- prepare_lake_table_resp[].error_code: UnknownServerError",
            "+ prepare_lake_table_resp[].error_code: TableNotExist",
            "+ prepare_lake_table_resp[].table_id: int64",
        ),
        CLEARER,
    ),
}
"""(scenario, question) -> its difference; the same over gRPC and over Fluss's own protocol."""
