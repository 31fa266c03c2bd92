"""HDFS by pyarrow, which needs Hadoop's native library on the machine."""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage.options.rules import HADOOP_PREFIX

HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})

_PREFIXES = ("dfs.", "fs.defaultFS", HADOOP_PREFIX)
_NO_LIBHDFS = (
    "hdfs needs Hadoop's native library: install Hadoop on this machine, and set HADOOP_HOME (or"
    " ARROW_LIBHDFS_DIR, the folder of libhdfs.so), JAVA_HOME, and CLASSPATH to the output of"
    " `hadoop classpath --glob`"
)


def hdfs_file_system(scheme: str, authority: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The file system of ``SCHEME://AUTHORITY``.

    :raises ConfigurationError: Hadoop's library is missing, or the address is not valid.
    :raises OSError: the cluster cannot be reached.
    """
    user, _, place = authority.rpartition("@")
    host, _, port = place.partition(":")
    conf = {
        key.removeprefix(HADOOP_PREFIX): value
        for key, value in options.items()
        if key.startswith(_PREFIXES)
    }
    name = f"{scheme}://{host}" if host else "default"
    try:
        return fs.HadoopFileSystem(name, int(port or 0), user=user or None, extra_conf=conf or None)
    except ValueError as error:
        raise ConfigurationError(f"{scheme}://{authority}: {error}") from error
    except OSError as error:
        # The first attempt of a process names it; later ones say "Prior attempt ... failed".
        if any(word in str(error) for word in ("libhdfs", "libjvm")):
            raise ConfigurationError(f"{scheme}://{authority}: {_NO_LIBHDFS}") from error
        raise
