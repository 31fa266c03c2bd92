"""Makes file systems from URIs and options, for the lake, Fluss's remote storage and work folders.

Local files, S3, GCS, Azure and HDFS are accessed through pyarrow, other schemes through fsspec.
Options have the names of Iceberg (``s3.endpoint``, ``client.region``, ``gcs.project-id``), Fluss
(``s3.access-key``) or Hadoop (``fs.s3a.access.key``, ``hadoop.fs.s3a.access.key``). Each store has
a table of them: an option is passed to pyarrow, refused, or ignored. No request is sent before a
file is opened.
"""

from sluice.storage.azure import AZURE_SCHEMES
from sluice.storage.checksums import CHECKSUM_ADVICE, CHECKSUM_VARIABLE, is_checksum_refusal
from sluice.storage.gcs import GCS_SCHEMES
from sluice.storage.hdfs import HDFS_SCHEMES
from sluice.storage.known import (
    credentials_end_ms,
    login_store,
    storage_options,
    unknown_options,
)
from sluice.storage.places import (
    OBJECT_STORE_SCHEMES,
    check_scheme,
    check_storage,
    file_system,
    fsspec_file_system,
    root_and_path,
)
from sluice.storage.s3 import S3_SCHEMES, s3_file_system, s3_options
from sluice.storage.timeouts import DEFAULT_TIMEOUTS, StorageTimeouts
from sluice.storage.whole_files import write_whole

__all__ = [
    "AZURE_SCHEMES",
    "CHECKSUM_ADVICE",
    "CHECKSUM_VARIABLE",
    "DEFAULT_TIMEOUTS",
    "GCS_SCHEMES",
    "HDFS_SCHEMES",
    "OBJECT_STORE_SCHEMES",
    "S3_SCHEMES",
    "StorageTimeouts",
    "check_scheme",
    "check_storage",
    "credentials_end_ms",
    "file_system",
    "fsspec_file_system",
    "is_checksum_refusal",
    "login_store",
    "root_and_path",
    "s3_file_system",
    "s3_options",
    "storage_options",
    "unknown_options",
    "write_whole",
]
