"""How programs are compiled: those that run once, and those that run often."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeVar

import equinox as eqx
import jax

T = TypeVar("T")
Options = dict[str, dict[str, Any]]  # by kind of machine

# Without what takes most of a compiler's time, and pays off only in programs that run often
ONCE: Options = {"cpu": {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}}
OFTEN: Options = {
    # The last level takes longer to compile, and a training step is no faster
    "cpu": {"xla_backend_optimization_level": 2},
    # Matrix products are the vendor's: XLA's own, a little faster in large batches, are written and timed
    # dozens of times for each shape, which takes longer than all else that is compiled.
    "gpu": {"xla_gpu_enable_triton_gemm": False},
}


def compiling(options: Options) -> dict[str, Any]:
    """Arguments of `jax.jit` for this machine. What `XLA_FLAGS` says holds."""
    flags, own = os.environ.get("XLA_FLAGS", ""), options.get(jax.default_backend(), {})
    chosen = {name: value for name, value in own.items() if name not in flags and _is_known(name, value)}
    return {"compiler_options": chosen} if chosen else {}


@cache
def _is_known(name: str, value: Any) -> bool:
    """Options come and go with versions of the compiler, and one that it does not know is an error."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@contextmanager
def keeping_garbage() -> Iterator[None]:
    """Tracing makes millions of objects that stay: to look for cycles among them is a quarter of its time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def once(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)` as one program. Operation by operation, dozens of programs would be compiled."""
    with keeping_garbage():
        return eqx.filter_jit(function, **compiling(ONCE))(*args)


def often(function: Callable[..., T]) -> Callable[..., T]:
    """The function, compiled when it is first called: nobody knows before on what machine."""
    compiled = cache(lambda: eqx.filter_jit(function, **compiling(OFTEN)))

    @wraps(function)
    def run(*args: Any) -> T:
        with keeping_garbage():
            return compiled()(*args)

    return run
