"""Tables with a primary key in the simulation: whatever fails and whoever comes between, the lake
with its deletes applied is what the table was at the offsets that the lake says it holds. Other
writers rewrite its files, and no round is starved by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.simulation.__main__ import main
from tests.simulation.controls import CONTROLS
from tests.simulation.faults import KEYED_KINDS
from tests.simulation.fluss.keyed import draw_budget
from tests.simulation.lake.maintenance import draw_habits
from tests.simulation.simulation import Variant, run_seed

pytestmark = pytest.mark.no_rerun
FEW, MANY = 100, 3_000
KEYED = Variant(keyed=True)
CONTROL_SEEDS_MAX = 200
MUST_OCCUR = (
    "log lost its beginning",
    "batch damaged",
    "repair: rebuild",
    "log truncated",
    "partition created again",
    "table dropped and created again",
    "compaction",
    "rolled back",
    "driver killed",
    "driver stopped beyond the time-out",
    "claim retried",
    "executor lost",
    "lake commit unknown, landed",
    "round cut by bytes",
    "round already landed",
    "snapshot of a dead round registered",
)
RARE = (
    "commit by position and equality",
    "merge of positions refused",
    "others lost their files",
    "conversion arrived",
    "conversion died after its commit",
    "conversion landed and called refused",
    "conversion lost its files",
    "process ended before a late commit",
)
"""Kinds that some hundred seeds may lack."""


def run(seeds: Iterable[int]) -> Counter[str]:
    """Counts of what happened; fails with the trace of the first seed that finds a violation."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed, variant=KEYED)
        if outcome.violation:
            trace = "\n".join(run_seed(seed, trace=True, variant=KEYED).trace)
            pytest.fail(
                f"{trace}\nseed {seed}: {outcome.violation}\n"
                f"python -m tests.simulation --keyed --seed {seed} --trace"
            )
        happened += outcome.happened
    return happened


def test_the_lake_is_the_table_whatever_happens() -> None:
    happened = run(range(1, FEW + 1))
    kinds = (*MUST_OCCUR, *(kind for kind in KEYED_KINDS if kind not in RARE))
    assert [kind for kind in kinds if not happened[kind]] == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_thousands_of_keyed_seeds() -> None:
    happened = run(range(FEW + 1, FEW + MANY + 1))
    assert [kind for kind in MUST_OCCUR if happened[kind] < 20] == []
    assert [kind for kind in KEYED_KINDS if happened[kind] < (1 if kind in RARE else 20)] == []


@pytest.mark.parametrize(
    ("control", "damage"),
    [
        ("no deletes", "is there twice"),
        ("unchecked positions", "is there twice"),
        ("second vectors", "no reader can plan the table"),
        ("stale look-ups", "is there twice"),
        ("no spare deletes", "is there twice"),
        ("old files kept", "is there twice"),
        ("unchecked compactions", "is there twice"),
        ("starved rounds", "was starved by rewrites"),
        ("spare deletes left", "left by clean-up"),
        ("rebuilt beside", "is there twice"),
        ("unchecked conversions", "is there twice"),
        ("half conversions", "is there twice"),
        ("newer rows converted", "has rows"),
        ("short lists", "is there twice"),
        ("forgotten conversions", "referenced file is gone"),
        ("orphans by age alone", "referenced file is gone"),
        ("tagged conversions", "the tag is at snapshot"),
        ("conversions as rounds", "has a commit user"),
        ("no fence", "rows doubled"),
        ("blind repetition", "rows doubled"),
        ("hasty deletion", "referenced file is gone"),
        ("naive clean-up", "referenced file is gone"),
    ],
)
def test_a_faulty_part_does_damage_that_is_found_soon(control: str, damage: str) -> None:
    found: list[str] = []
    variant = replace(CONTROLS[control], keyed=True)
    for seed in range(1, CONTROL_SEEDS_MAX + 1):
        violation = run_seed(seed, variant=variant).violation
        if violation:
            found.append(violation)
        if any(damage in text for text in found):
            return
    pytest.fail(f"{CONTROL_SEEDS_MAX} seeds, found: {found}")


def test_every_seed_says_how_it_deletes() -> None:
    """A seed without look-ups has equality deletes only; one with vectors replaces them."""
    off = next(seed for seed in range(1, 100) if draw_budget(seed).bytes_max == 0)
    happened = run(range(off, off + 1))
    assert happened["commit by equality"]
    assert not happened["commit by position"]
    vectors = [seed for seed in range(1, 20) if draw_habits(seed).as_vectors]
    happened = run(vectors)
    assert happened["vectors replaced"]
    assert not happened["marks merged"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_the_same_each_time(seed: int) -> None:
    first, second = (run_seed(seed, variant=KEYED) for _ in range(2))
    assert (first.digest, first.happened) == (second.digest, second.happened)


def test_the_command_tells_how_to_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1-3", "--keyed"]) == 0
    assert "3 seeds" in capsys.readouterr().out
    assert main(["--seeds", "1-10", "--control", "no deletes"]) == 1
    assert "--trace --keyed" in capsys.readouterr().out
