"""Strict arithmetic for all tests: float64 is there, and nothing is promoted silently."""

import os
from pathlib import Path

# Tests run hundreds of programs once each, so compiling costs more than running: compile quickly, here and
# in the processes that tests start. `XLA_FLAGS= pytest` has the compiler that users have.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)
# What was compiled once is kept: a second run takes half the time. Each process of tests has its own folder,
# as JAX would read what another one is just writing.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(
    Path(__file__).parent.parent / ".jax_cache" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Several tests run at a time, on small matrices: threads of BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(autouse=True, scope="session")
def _keep_loops_short():
    """Loops of a few steps stay loops: written out they would take as many times as long to compile."""
    from svae.kernels import scan  # here, where shapes and types are watched already

    scan.WRITTEN_OUT = 1


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """They fill the memory, and few are used by other files' tests."""
    yield
    if _num_maps() > 8_000:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _keep_maps_few():
    """Each compiled program holds memory maps, of which a process may have only so many (65,530)."""
    yield
    if _num_maps() > 30_000:
        jax.clear_caches()


def _num_maps():
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0
