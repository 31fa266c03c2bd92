"""Memory by address for compiled kernels: loads, stores and copies at any alignment.

Importing this imports numba; only what is being compiled needs it. Nothing here checks a bound: the
kernels do, before each access.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

intrinsic: Any = extending.intrinsic
# Its functions have the arguments that a kernel gives; what they generate gets them by position.
# ruff: noqa: ARG001


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _loader(bits: int, signed: bool) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], bits), align=1)
            if bits == 64:
                return value
            widen = builder.sext if signed else builder.zext
            return widen(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            address, value = arguments
            if bits < 64:
                value = builder.trunc(value, ir.IntType(bits))
            builder.store(value, _pointer(builder, address, bits), align=1)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), generate

    return store


load_u8 = _loader(8, False)
load_i16 = _loader(16, True)
load_i32 = _loader(32, True)
load_u32 = _loader(32, False)
load_i64 = _loader(64, True)
store_8 = _storer(8)
store_16 = _storer(16)
store_32 = _storer(32)
store_64 = _storer(64)


@intrinsic
def shift_right(typing_context: Any, value: Any, bits: Any) -> Any:
    """Without the sign: zeros come in from the left."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def add(typing_context: Any, a: Any, b: Any) -> Any:
    """A sum that may overflow: numba's own promises the compiler that it does not."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.add(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def multiply(typing_context: Any, a: Any, b: Any) -> Any:
    """A product that may overflow."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.mul(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copies ``size`` bytes between places that do not overlap."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source, size = arguments
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        places = (builder.inttoptr(target, byte), builder.inttoptr(source, byte))
        builder.call(memcpy, (*places, size, ir.Constant(ir.IntType(1), 0)))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def fill_zeros(typing_context: Any, target: Any, size: Any) -> Any:
    """Sets ``size`` bytes to zero."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, size = arguments
        memset = builder.module.declare_intrinsic("llvm.memset", [byte, ir.IntType(64)])
        zero = ir.Constant(ir.IntType(8), 0)
        builder.call(
            memset, (builder.inttoptr(target, byte), zero, size, ir.Constant(ir.IntType(1), 0))
        )
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate
