"""How answers to Fluss's Java client differ between the embedded server and Fluss 0.9.1, and why.

Each entry is checked exactly. A difference that is not listed is a failure, and so is an entry
whose difference no longer exists.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance.difference import Difference
from tests.support.clients.java_client import IN_WORDS, Answers

CLEARER = (
    "Fluss 0.9.1 fails with error -1 and a Java exception; the embedded server names the cause"
)
REFUSED = "nobody could write or read such a table: refused at its creation, with the reason"
ONE_LAKE = "the embedded server's tables all have the format of its lake"
LATER = "an option or a change that Fluss accepts after 0.9.1"
TOGETHER = "the embedded server changes columns and options in one transaction; Fluss 0.9.1 refuses"
ADDED_COLUMN = (
    "Fluss 0.9.1 cannot project a column out of batches from before it was added; here null"
)
NO_COLUMNS = (
    "Fluss 0.9.1 drops a fetch of no columns without an answer; the embedded server refuses it"
)
NO_ROWS = "the embedded server refuses the limit, which the Java client takes for no rows"
LOG_FILE = "a checkpoint of the embedded server's RocksDB also contains an empty write-ahead log"
INDEXED = "Fluss 0.9.1 makes a keyed table with rows and log INDEXED, and fails at its first row"
NOT_OFFERED = "a call that the embedded server does not offer: it has one tablet server and no ACLs"
NOT_IN_0_9 = "a call of 1.0, or a field of one, which Fluss 0.9.1 does not have"
COLUMN_TIERED = "Fluss 0.9.1 adds no columns to a tiered table"
WRONG_TABLE = "the error names the missing table, not its schema"

_CALLS_NOT_OFFERED = {
    "rules of access": NOT_OFFERED,
    "a tag of a server": NOT_OFFERED,
    "a tag of a server less": NOT_OFFERED,
    "progress of a rebalance": NOT_OFFERED,
    "a rebalance": NOT_OFFERED,
}

LISTED: Mapping[tuple[str, str], Difference] = {
    ("tables", "schema of a missing one"): Difference("TableNotExistException", WRONG_TABLE),
    ("refused_tables", "without columns"): Difference("InvalidTableException", REFUSED),
    ("refused_tables", "of no buckets"): Difference("InvalidTableException", CLEARER),
    ("refused_tables", "with table.datalake.format=paimon"): Difference(
        "InvalidTableException", ONE_LAKE
    ),
    ("refused_tables", "with table.statistics.columns=name"): Difference("done", LATER),
    ("refused_tables", "keyed, with table.merge-engine=newest"): Difference(
        "InvalidConfigException", CLEARER
    ),
    ("refused_tables", "keyed by BOOLEAN"): Difference("InvalidTableException", REFUSED),
    ("refused_tables", "keyed by TINYINT"): Difference("InvalidTableException", REFUSED),
    ("refused_tables", "keyed by TIMESTAMP_LTZ(3)"): Difference("InvalidTableException", REFUSED),
    ("partitions", "of a week"): Difference("InvalidPartitionException", CLEARER),
    ("alterations", "an option"): Difference("done", LATER),
    ("alterations", "a wrong value"): Difference("InvalidConfigException", LATER),
    ("alterations", "an option less"): Difference("done", LATER),
    ("alterations", "options: properties"): Difference(
        "{table.datalake.format=iceberg, table.datalake.freshness=1min,"
        " table.log.tiered.local-segments=5, table.replication.factor=1}",
        LATER,
    ),
    ("alterations", "a column that is never null"): Difference(
        "InvalidAlterTableException", CLEARER
    ),
    ("alterations", "a column less"): Difference("InvalidAlterTableException", CLEARER),
    ("alterations", "another name"): Difference("InvalidAlterTableException", CLEARER),
    ("alterations", "another type"): Difference("InvalidAlterTableException", CLEARER),
    ("alterations", "the new column of both"): Difference(
        "[+A 0 (null, 1), +A 1 (x, 3)]", ADDED_COLUMN
    ),
    ("alterations", "a column and an option"): Difference("done", TOGETHER),
    ("log_scans", "no columns"): Difference("FetchException", NO_COLUMNS),
    ("partition_scans", "latest KV snapshots of none"): Difference(
        "PartitionNotExistException", CLEARER
    ),
    ("limit_scans", "a keyed table, limit -1"): Difference("[]", NO_ROWS),
    ("kv_snapshots", "files of bucket 0"): Difference(
        "up to 22: [CURRENT, MANIFEST-N, N.log, N.sst, OPTIONS-N]", LOG_FILE
    ),
    ("kv_snapshots", "files of bucket 1"): Difference(
        "up to 31: [CURRENT, MANIFEST-N, N.log, N.sst, OPTIONS-N]", LOG_FILE
    ),
    ("row_formats", "keyed_indexed: insert"): Difference("1", INDEXED),
    **{
        ("cluster", question): Difference("UnsupportedVersionException", reason)
        for question, reason in _CALLS_NOT_OFFERED.items()
    },
}
"""(subject, question) -> the embedded server's answer."""

OWN_WORDS: Mapping[str, tuple[str, ...]] = {
    "databases": (
        "create again",
        "drop with a table",
        "drop again",
        "info of a missing one",
        "tables of a missing one",
    ),
    "tables": (
        "create again",
        "drop again",
        "info of a missing one",
        "create in a missing database",
        "create if missing in a missing database",
        "drop in a missing database",
        "schema of a wrong number",
    ),
    "refused_tables": (
        "of three replicas",
        "of no replicas",
        "with a column __offset",
        "with a column __bucket",
        "with a column _change_type",
        "with a column _log_offset",
        "with table.nothing=1",
        "with table.log.ttl=soon",
        "with table.log.ttl=-1",
        "with table.log.format=CSV",
        "with table.log.arrow.compression.type=GZIP",
        "with table.log.arrow.compression.zstd.level=99",
        "with table.log.tiered.local-segments=0",
        "with table.log.tiered.local-segments=many",
        "with table.kv.format=CSV",
        "with table.datalake.enabled=perhaps",
        "with table.merge-engine=first_row",
        "with table.delete.behavior=DISABLE",
        "with owner=ann",
        "with table.auto-partition.enabled=true",
        "keyed, with table.kv.format=CSV",
        "keyed, with table.merge-engine=versioned",
        "keyed, with table.delete.behavior=NEVER",
        "keyed, with table.changelog.image=HALF",
        "keyed, with table.kv.format-version=7",
        "versioned by a text",
        "versioned by a missing column",
        "first row with deletes",
        "bucketed by an array",
    ),
    "partitions": (
        "create again",
        "create ''",
        "create 'a b'",
        "create 'a.b'",
        "create 'a/b'",
        "create '__mine'",
        "create 'a$b'",
        "create 'é'",
        "create by another key",
        "create by no key",
        "drop again",
        "create by one of two keys",
        "drop one of two keys",
        "of a plain table",
        "created in a plain table",
        "dropped in a plain table",
        "of a missing table",
        "created in a missing table",
        "dropped in a missing table",
    ),
    "alterations": (
        "what cannot change",
        "what is not known",
        "two, one of them wrong",
        "a missing table",
        "a column that is there",
    ),
    "log_scans": ("an offset beyond the end",),
    "partition_scans": (
        "latest offsets of none",
        "latest KV snapshots without a partition",
    ),
    "offsets": (
        "of the future",
        "of a partition of a plain table",
    ),
    "upserts": ("a delete, DISABLE",),
    "kv_snapshots": (
        "files of a missing snapshot",
        "of a missing table",
        "of a log table",
        "of a partition of a plain table",
    ),
    "row_formats": ("compacted rows with an indexed log",),
    "lake": (
        "none",
        "none that is readable",
        "of a missing table",
        "number 8",
    ),
    "cluster": ("rows that are not counted",),
    "without_a_lake": (
        "tiering on",
        "a tiered table",
        "lake snapshot",
    ),
}
"""Subject -> questions with the same class of error in other words: Sluice's errors name the thing,
the value and the next step. Errors that the client itself raises have the same words."""


def wrong(
    real: Answers,
    embedded: Answers,
    listed: Mapping[tuple[str, str], Difference] = LISTED,
    own_words: Mapping[str, tuple[str, ...]] = OWN_WORDS,
) -> list[str]:
    """What differs and is not listed, and what is listed and does not differ; a line each."""
    lines = []
    for key in [*real, *(key for key in embedded if key not in real)]:
        subject, question = key
        there, here = real.get(key), embedded.get(key)
        if question.endswith(IN_WORDS):
            continue
        if (difference := listed.get(key)) is not None:
            if here == there or here != difference.answered:
                lines.append(
                    f"{key}: {here!r}, listed as {difference.answered!r}; Fluss: {there!r}"
                )
            continue
        if here != there:
            lines.append(f"{key}: {here!r}; Fluss: {there!r}")
        words = subject, question + IN_WORDS
        differ = real.get(words) != embedded.get(words)
        if here == there and differ != (question in own_words.get(subject, ())):
            lines.append(f"{words}: {embedded.get(words)!r}; Fluss: {real.get(words)!r}")
    asked = {subject for subject, _ in real}
    names = [*listed, *((subject, q) for subject, of in own_words.items() for q in of)]
    return lines + [
        f"{(subject, question)}: listed, and not asked"
        for subject, question in names
        if subject in asked and (subject, question) not in real
    ]


_ANSWERED_BY_NEW_CALLS = {
    "a comment and two options": "done",
    "a comment and two options: seen": "for the tour, {owner=ann, team=blue}",
    "another value and an option less": "done",
    "another value and an option less: seen": "for the tour, {owner=bob}",
    "no comment": "done",
    "no comment: seen": "no comment, {owner=bob}",
    "the same": "done",
    "the same: seen": "no comment, {owner=bob}",
    "nothing": "done",
    "nothing: seen": "no comment, {owner=bob}",
    "a missing database": "DatabaseNotExistException",
    "a database if it is there": "done",
    "health": "GREEN, any buckets true, not in sync 0, not active 0",
    "KV snapshots of each bucket": "true",
    "KV snapshots of nobody": "UnknownTableOrBucketException",
    "KV snapshots of no partition": "PartitionNotExistException",
    "manifests": "[]",
    "manifests of nobody": "UnknownTableOrBucketException",
    "manifests of no partition": "PartitionNotExistException",
    "another number of buckets": "InvalidAlterTableException",
}

LISTED_1_0: Mapping[tuple[str, str], Difference] = {
    # The client of 1.0 refuses a scan of no columns itself.
    **{key: difference for key, difference in LISTED.items() if key != ("log_scans", "no columns")},
    ("limit_scans", "a keyed table, without a limit"): Difference(
        "[(0, n0, 0), (2, n2, 20), (3, n3, 30), (4, n4, 40), (5, n5, 50), (6, n6, 60), (7, n7, 70),"
        " (8, n8, 80), (9, n9, 90)]",
        NOT_IN_0_9,
    ),
    ("since_1_0", "a column of a tiered table"): Difference("done", COLUMN_TIERED),
    **{
        ("since_1_0", question): Difference(answer, NOT_IN_0_9)
        for question, answer in _ANSWERED_BY_NEW_CALLS.items()
    },
}
"""As ``LISTED``, for the client of 1.0 with a Fluss 0.9.1."""

OWN_WORDS_1_0: Mapping[str, tuple[str, ...]] = {
    **OWN_WORDS,
    "since_1_0": (
        "a missing database: seen",
        "partitions of a plain table with those of the system",
        "a wrong name",
    ),
}
