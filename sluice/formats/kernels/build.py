"""Compiles the kernels to machine code. Importing this imports numba, which takes a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba.core import types

from sluice.formats.kernels import (
    array_kernels,
    record_kernels,
    row_kernels,
    row_writers,
    sst_kernels,
    xxh3_kernels,
)

KERNELS: tuple[Callable[..., int], ...] = (
    row_kernels.decode_rows,
    row_kernels.gather,
    row_writers.encode_rows,
    record_kernels.find_records,
    record_kernels.split_keys,
    record_kernels.join_records,
    record_kernels.frame_records,
    array_kernels.count_elements,
    array_kernels.decode_arrays,
    array_kernels.encode_arrays,
    sst_kernels.check_lz4,
    sst_kernels.enter,
    sst_kernels.merge,
    sst_kernels.read_index,
    xxh3_kernels.check_xxh3,
)
# An address in a kernel is a sum, and any part of it may be 0. The compiler would treat one part as
# a pointer and the rest as its offset. If the part is 0, it would see a null pointer and remove the
# check before it as always false (this happened in ``sst_kernels._sift``).
binding.set_option("sluice", "-addr-sink-using-gep=false")
_njit: Any = numba.njit
_EXTERNAL = ("llvm.", "memcpy", "memset", "memmove")


def build() -> tuple[dict[str, tuple[str, int]], bytes]:
    """Symbol and count of arguments by kernel, and one object file for this process's CPU."""
    module, symbols, codegen = compile_kernels()
    return symbols, bytes(codegen._tm.emit_object(module))


def compile_kernels() -> tuple[Any, dict[str, tuple[str, int]], Any]:
    """One LLVM module with all kernels, symbol and count of arguments by kernel, numba's codegen.

    The CPU is this machine's, or the one that ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` name.
    """
    symbols = {}
    linked = codegen = None
    for kernel in KERNELS:
        count = kernel.__code__.co_argcount
        signature = types.int64(*(types.int64,) * count)
        compiled = _njit(
            [signature],
            error_model="numpy",
            nogil=True,
            no_cpython_wrapper=True,
            no_cfunc_wrapper=True,
        )(kernel).overloads[signature.args]
        module = compiled.library._final_module.clone()
        symbols[kernel.__name__] = (compiled.fndesc.llvm_func_name, count)
        if linked is None:
            linked = module
            codegen = compiled.library.codegen
        else:
            linked.link_in(module)
    _check_alone(linked)
    return linked, symbols, codegen


def _check_alone(module: Any) -> None:
    """Loading an object file that misses a function would end the process."""
    assert isinstance(module, binding.ModuleRef)
    missing = [f.name for f in module.functions if f.is_declaration]
    missing = [name for name in missing if not name.startswith(_EXTERNAL)]
    if missing:
        raise RuntimeError(f"compiled kernels call {', '.join(missing)}: they must stand alone")
