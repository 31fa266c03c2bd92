"""A plan, a result or a keys file appears complete under its name on every object store."""

from __future__ import annotations

import pytest

from sluice.storage import fsspec_file_system, write_whole
from tests.stores.conftest import Store
from tests.support.stores.azurite import Azurite
from tests.support.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.long


def test_a_file_is_replaced_and_no_other_file_stays(store: Store) -> None:
    found, path = fsspec_file_system(f"{store.root}/whole/keys-1.json", store.options)
    for content in (b"the first content", b"the second"):
        write_whole(found, path, content, private=True)
        assert found.cat_file(path) == content
    folder = path.rsplit("/", 1)[0]
    found.invalidate_cache()
    assert found.glob(f"{folder}/*") == [path]


def test_google_has_no_copy_of_it_at_any_time(gcs: FakeGcs) -> None:
    found, path = fsspec_file_system("gs://lake/whole/keys-2.json", gcs.options("good-token"))
    before = len(gcs.requests())
    write_whole(found, path, b"secrets", private=True)
    seen = gcs.requests()[before:]
    assert seen
    assert not [one for one in seen if ".tmp" in one or "rewriteTo" in one or "DELETE" in one]


def test_azure_never_shows_it_empty(azurite: Azurite) -> None:
    """An object that pyarrow opens is there at once, and gets its content when it is closed."""
    uri = azurite.uri("lake", "whole/keys-3.json")
    found, path = fsspec_file_system(uri, azurite.options())
    for _ in range(2):
        before = len(azurite.requests())
        write_whole(found, path, b"secrets", private=True)
        puts = [one for one in azurite.requests()[before:] if "PUT" in one]
        [put] = [one for one in puts if "/keys-3.json" in one and ".tmp" not in one]
        assert "comp=" not in put, "one request, which copies it"
