"""The compiled kernels, as functions of this module; importing it loads or compiles them.

Import it where a kernel is first needed, not at the top of a module: loading costs 0.2 s and
compiling, once for a user and machine, several seconds. Python's lock on imports sees to it that
threads compile once. Arguments are whole numbers: counts, and addresses of memory that the caller
keeps alive. The GIL is released while a kernel runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import binding

from sluice.formats import kernel_cache

Kernel = Callable[..., int]


def _load() -> tuple[Any, dict[str, Kernel]]:
    """The engine that owns the machine code, and the kernels by name."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    folder = kernel_cache.folder()
    path = None if folder is None else folder / kernel_cache.file_name()
    found = None if path is None else kernel_cache.load(path)
    if found is None:
        from sluice.formats.kernel_build import build

        found = build()
        if path is not None:
            kernel_cache.save(path, *found)
    symbols, code = found
    target = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, {
        name: _kernel(engine.get_function_address(symbol), count)
        for name, (symbol, count) in symbols.items()
    }


def _kernel(address: int, count: int) -> Kernel:
    """numba's calling convention: result and exception by address, then the arguments."""
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * count
    )
    native = kind(address)

    def call(*arguments: int) -> int:
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        status = native(ctypes.addressof(result), ctypes.addressof(exception), *arguments)
        assert status == 0, "no kernel raises"
        return result.value

    return call


_engine, _kernels = _load()
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
check_xxh3 = _kernels["check_xxh3"]
enter = _kernels["enter"]
merge = _kernels["merge"]
read_index = _kernels["read_index"]
