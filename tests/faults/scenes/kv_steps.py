"""Where puts and KV snapshots of a server can be killed."""

PUTS = (
    "server.put_kv.before_log",
    "server.append.after_write",
    "server.put_kv.after_log",
    "server.put_kv.after_store",
)
SNAPSHOTS = (
    "server.kv_snapshot.after_checkpoint",
    "server.kv_snapshot.before_file",
    "server.kv_snapshot.before_metadata",
    "server.kv_snapshot.after_metadata",
    "server.kv_snapshot.before_record",
    "server.kv_snapshot.after_record",
    "server.kv_snapshot.before_delete",
    "server.kv_snapshot.after_commit",
)
