"""Compiles the kernels on this machine if the package has no shared object for it.

This needs numba once per user and machine. Later processes load the machine code with llvmlite.
"""

from __future__ import annotations

import logging

from llvmlite import binding

from sluice.extras import require
from sluice.formats.kernels import cache as kernel_cache
from sluice.formats.kernels.objects import LoadedKernels, Origin, purpose

_LOG = logging.getLogger(__name__)


def load() -> LoadedKernels:
    """Loads the kernels from the user's cache, or compiles and caches them.

    :raises MissingExtra: the kernels must be compiled, and numba is not installed.
    """
    folder = kernel_cache.folder()
    path = None if folder is None else folder / kernel_cache.file_name()
    found = None if path is None else kernel_cache.load(path)
    origin = Origin.CACHE
    if found is None:
        require("numba", "compile", purpose(), then="sluice warm")
        _LOG.warning("compiling Sluice's loops for this machine; this takes about 10 s, once")
        from sluice.formats.kernels.build import build

        found = build()
        origin = Origin.COMPILED
        if path is None or not kernel_cache.save(path, *found):
            path = None
            _LOG.warning(
                "the compiled loops cannot be stored in %s, so each process compiles them: "
                "set NUMBA_CACHE_DIR to a writable folder",
                folder or "the user's cache folder, because the user has no home folder",
            )
    symbols, code = found
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    kernels = {
        name: (engine.get_function_address(symbol), count)
        for name, (symbol, count) in symbols.items()
    }
    file = None if path is None else str(path)
    return LoadedKernels(engine, kernels, origin, file, kernel_cache.compiler())
