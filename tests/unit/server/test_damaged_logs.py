"""Damaged segments and index files: intact batches stay, damage is named, no offset is reused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damaged_logs import (
    Check,
    Damage,
    Written,
    as_an_earlier_version,
    cut_out,
    flip,
    write,
    zero,
)

KINDS = [
    pytest.param(is_clean, segment_bytes, is_old, id=f"{stop}-{segments}{old}")
    for is_clean, stop in ((True, "clean"), (False, "killed"))
    for segment_bytes, segments in ((1 << 20, "one"), (1_500, "several"))
    for is_old, old in ((False, ""), (True, "-old"))
]


def damaged(
    tmp_path: Path,
    seed: int,
    kind: tuple[bool, int, bool],
    damage: Callable[[Written, random.Random], Damage],
) -> Check:
    """Writes a log, damages it, and checks what becomes of it."""
    is_clean, segment_bytes, is_old = kind
    rng = random.Random(seed)
    folder = tmp_path / f"{seed}"
    written = write(folder, rng, batches=20, segment_bytes=segment_bytes, is_clean=is_clean)
    if is_old:
        as_an_earlier_version(written)
    check = Check(written, damage(written, rng))
    check.run(rng)
    shutil.rmtree(folder)
    return check


@pytest.mark.parametrize(("is_clean", "segment_bytes", "is_old"), KINDS)
def test_a_flipped_bit_takes_no_intact_batch_with_it(
    tmp_path: Path, is_clean: bool, segment_bytes: int, is_old: bool
) -> None:
    for seed in range(8):
        damaged(tmp_path, seed, (is_clean, segment_bytes, is_old), flip)


MORE = [
    pytest.param(zero, id="a zeroed page"),
    pytest.param(cut_out, id="a truncated middle"),
    pytest.param(lambda written, rng: flip(written, rng, bits=3), id="several bits"),
]


@pytest.mark.parametrize("damage", MORE)
def test_larger_damage_takes_no_intact_batch_with_it(
    tmp_path: Path, damage: Callable[[Written, random.Random], Damage]
) -> None:
    for seed, kind in enumerate(KINDS):
        for more in (0, 100):
            damaged(tmp_path, seed + more, kind.values, damage)


@pytest.mark.long
@pytest.mark.parametrize("damage", MORE)
def test_much_larger_damage(
    tmp_path: Path, damage: Callable[[Written, random.Random], Damage]
) -> None:
    for number, kind in enumerate(KINDS):
        for seed in range(2_000 + 50 * number, 2_050 + 50 * number):
            damaged(tmp_path, seed, kind.values, damage)


@pytest.mark.long
@pytest.mark.parametrize(("is_clean", "segment_bytes", "is_old"), KINDS)
def test_a_thousand_flipped_bits(
    tmp_path: Path, is_clean: bool, segment_bytes: int, is_old: bool
) -> None:
    for seed in range(1_000, 1_125):  # 1,000 in all kinds
        damaged(tmp_path, seed, (is_clean, segment_bytes, is_old), flip)
