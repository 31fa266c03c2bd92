"""Files that go while all of them are read."""

from __future__ import annotations

from pathlib import Path

from tests.support.harness.contents import contents


def test_a_file_that_goes_is_passed_over(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d").write_text("d")
    found = contents(tmp_path, tmp_path / "none")
    first, held = next(found)
    gone = next(path for path in tmp_path.iterdir() if path.is_file() and path != first)
    gone.unlink()
    left = {first.name: held} | {path.name: text for path, text in found}
    assert left == {name: name.encode() for name in {"a", "b", "c", "d"} - {gone.name}}
