"""SAS tokens as catalogs vend them: for one container, with some permissions."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.masking import mask
from sluice.storage import file_system
from tests.stores.conftest import ADLS_IO, needs_sas
from tests.support.stores.azurite import Azurite
from tests.support.stores.iceberg_io import IcebergIO

pytestmark = [pytest.mark.long, needs_sas]


def test_a_token_of_the_container(azurite: Azurite, jvm: Jvm) -> None:
    uri = azurite.uri("lake", "token/of/container")
    options = azurite.sas_options(azurite.container_sas("lake", "racwdl"))
    filesystem, path = file_system(uri, options)
    with filesystem.open_output_stream(path) as out:
        out.write(b"abc")
    assert filesystem.open_input_file(path).read() == b"abc"
    assert IcebergIO(jvm, ADLS_IO, options).read(uri) == b"abc"
    filesystem.delete_file(path)
    azurite.container("other")
    other, path = file_system(azurite.uri("other", "x"), options)
    with pytest.raises(OSError, match="403"):
        other.get_file_info(path)


@pytest.mark.parametrize("permissions", ["rl", "racwd"])
def test_pyarrow_writes_only_with_all_permissions(azurite: Azurite, permissions: str) -> None:
    """It lists before it writes. Its errors hold the token, which no text of ours may show."""
    token = azurite.container_sas("lake", permissions)
    uri = azurite.uri("lake", f"some/{permissions}")
    filesystem, path = file_system(uri, azurite.sas_options(token))
    with (
        pytest.raises(OSError, match="403") as caught,
        filesystem.open_output_stream(path) as out,
    ):
        out.write(b"abc")
    [signature] = parse_qs(token)["sig"]
    said = mask(str(caught.value))
    assert signature not in said
    assert signature.rstrip("=").replace("+", "%2B").replace("/", "%2F") not in said
