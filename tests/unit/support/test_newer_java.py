"""A Java for a server: the error where there is none."""

from __future__ import annotations

import pytest

from sluice.errors import ConfigurationError
from tests.support.catalog_servers.newer_java import java_of


def test_a_java_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"no Java 999 or newer .* set JAVA_HOME"):
        java_of(999)
