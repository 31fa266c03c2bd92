"""Compares loops compiled for several kinds of CPU with loops compiled for this CPU.

Shared objects are built like those of a wheel, and for two kinds of CPU that no wheel has. All run
in turns in one process. A ratio above 1 is faster than numba's code for this CPU.
"""

from __future__ import annotations

import ctypes
import math
import random
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import DBCompressionType, Options, Rdict

from bench import data
from bench.kernels.formats import decode, encode
from bench.measure import Line, report
from scripts import build_kernels
from sluice.client.kv.sst_values import read_values
from sluice.formats.kernels import compiled as kernels
from sluice.formats.kernels.objects import VARIANTS, Variant, cpu_flags, described
from sluice.formats.kv.value_batch import decode_values, stored_values
from sluice.formats.rows.arrays import COMPACTED, INDEXED

TRIES = 15
ROWS_MAX = 400_000
TRIED = (
    Variant("x86-64-v3", "linux-x86_64", "x86-64-v3", "", frozenset({"avx2", "bmi2", "fma"})),
    Variant("x86-64-v4", "linux-x86_64", "x86-64-v4", "", frozenset({"avx512bw", "avx512vl"})),
)
REFERENCE = "compiled for this CPU"
Work = dict[str, Callable[[], object]]


def run(rows: int) -> None:
    platform, flags = sysconfig.get_platform(), cpu_flags(Path("/proc/cpuinfo"))
    variants = tuple(
        each for each in (*VARIANTS, *TRIED) if each.platform == platform and each.flags <= flags
    )
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        paths = build_kernels.build(Path(tmp, "objects"), variants)
        for variant, path in zip(variants, paths, strict=True):
            size = path.stat().st_size / 1024
            report(Line(f"shared_object_{variant.name}", size, "KiB", None, "size"))
        sets = {REFERENCE: kernels.callables(kernels.LOADED)} | {
            variant.name: kernels.callables(described(ctypes.CDLL(str(path)), path.name))
            for variant, path in zip(variants, paths, strict=True)
        }
        _compare(sets, _work(min(rows, ROWS_MAX), Path(tmp, "store")))


def _compare(sets: dict[str, dict[str, kernels.Kernel]], work: Work) -> None:
    best = {(name, kind): math.inf for name in work for kind in sets}
    for _ in range(TRIES):
        for name, act in work.items():
            # the first one has cold caches
            for kind in random.sample(list(sets), len(sets)):
                vars(kernels).update(sets[kind])
                started = time.process_time()
                act()
                best[name, kind] = min(best[name, kind], time.process_time() - started)
    vars(kernels).update(sets[REFERENCE])
    for kind in sets:
        ratios = [best[name, REFERENCE] / best[name, kind] for name in work]
        for name, ratio in zip(work, ratios, strict=True):
            if kind != REFERENCE:
                value = best[name, kind] * 1000
                report(Line(f"{name}_{kind}", value, "core-ms", ratio, REFERENCE))
        if kind != REFERENCE:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            report(Line(f"all_{kind}", mean, "geometric mean", None, f"of ratios to {REFERENCE}"))


def _work(rows: int, folder: Path) -> Work:
    batches = list(data.batches(rows))
    schema = data.descriptor(1).schema
    types = [column.data_type for column in schema.columns]
    encoded = {of: encode(batches, types, of) for of in (COMPACTED, INDEXED)}
    values = [stored_values(each, 1) for each in encoded[COMPACTED]]
    _store(folder, rows // 4)
    found: Work = {
        "stored_values_decode": lambda: [
            decode_values(each, {1: schema}, schema, COMPACTED) for each in values
        ],
        "sst_files_merge": lambda: sum(map(len, read_values(folder, "store", 8 << 20))),
    }
    for of, arrays in encoded.items():
        found[f"{of.lower()}_encode"] = partial(encode, batches, types, of)
        found[f"{of.lower()}_decode"] = partial(decode, arrays, types, of)
    return found


def _store(folder: Path, rows: int) -> None:
    """Writes four uncompressed SST files with overlapping keys."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    options.set_compression_type(DBCompressionType.none())
    db: Any = Rdict(str(folder), options)
    numbers = random.Random(1).sample(range(rows), rows)
    for part in range(4):
        for number in numbers[part::4]:
            db[number.to_bytes(8, "big")] = number.to_bytes(8, "big") * 12
        db.flush()
    db.close()
    for path in folder.glob("*.log"):
        path.unlink()  # empty; a checkpoint has none
