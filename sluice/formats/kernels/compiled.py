"""The compiled kernels, as functions of this module; importing it loads or compiles them.

Import it where a kernel is first needed, not at the top of a module. Loading takes milliseconds
if the package has a shared object for this CPU. Otherwise numba compiles once per user and machine.
Python's import lock ensures that threads load the kernels once.

Arguments are counts and memory: an array or buffer, or an address of memory that the caller keeps
alive. The GIL is released while a kernel runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from sluice.extras import require
from sluice.formats.kernels import objects as kernel_objects
from sluice.formats.kernels.objects import LoadedKernels

Kernel = Callable[..., int]
Argument: TypeAlias = int | np.ndarray | pa.Buffer | None
"""A number, or memory whose address the kernel gets; None: address 0."""


def _load() -> LoadedKernels:
    found = kernel_objects.load()
    if found is not None:
        return found
    require("llvmlite", "compile", kernel_objects.purpose(), then="sluice warm")
    from sluice.formats.kernels import engine as kernel_engine

    return kernel_engine.load()


def callables(loaded: LoadedKernels) -> dict[str, Kernel]:
    """Returns the loaded kernels as functions, by name."""
    return {name: _kernel(address, count) for name, (address, count) in loaded.kernels.items()}


def _kernel(address: int, count: int) -> Kernel:
    """numba's calling convention: result and exception by address, then the arguments."""
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * count
    )
    native = kind(address)

    def call(*arguments: Argument) -> int:
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        status = native(
            ctypes.addressof(result), ctypes.addressof(exception), *map(_number, arguments)
        )
        assert status == 0, "kernels never raise"
        return result.value

    return call


def _number(argument: Argument) -> int:
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    if isinstance(argument, pa.Buffer):
        return int(argument.address)
    return argument or 0


LOADED = _load()
_kernels = callables(LOADED)
decode_rows = _kernels["decode_rows"]
gather = _kernels["gather"]
encode_rows = _kernels["encode_rows"]
find_records = _kernels["find_records"]
split_keys = _kernels["split_keys"]
join_records = _kernels["join_records"]
frame_records = _kernels["frame_records"]
count_elements = _kernels["count_elements"]
decode_arrays = _kernels["decode_arrays"]
encode_arrays = _kernels["encode_arrays"]
check_lz4 = _kernels["check_lz4"]
check_xxh3 = _kernels["check_xxh3"]
enter = _kernels["enter"]
merge = _kernels["merge"]
read_index = _kernels["read_index"]
