"""What servers of Apache Fluss offer by release: the api keys, and the versions of each.

The table is that of the released clients' ``ApiKeys``, which servers of the same release share;
``tests/real_fluss/client/test_java_client.py`` compares it with the jars.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Versions = Mapping[int, tuple[int, int]]
"""Api key -> the lowest and the highest version."""


def _versions(last_key: int, highest: Mapping[int, int]) -> Versions:
    return MappingProxyType({key: (0, highest.get(key, 0)) for key in range(1000, last_key + 1)})


V0_9_1 = _versions(1059, {1016: 1, 1017: 1, 1034: 1})
V1_0_0 = _versions(1066, {1014: 1, 1016: 3, 1017: 1, 1024: 1, 1034: 1, 1044: 1})

RELEASES: Mapping[str, Versions] = MappingProxyType({"0.9.1-incubating": V0_9_1, "1.0.0": V1_0_0})
