"""The inverse Cholesky factors of many small matrices in one kernel."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from svae.kernels import tiles


def inverse_cholesky(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Lower triangular W with W A W' = I; all NaN where A is not positive definite."""
    size, batch = a.shape[-1], a.shape[:-2]
    side, count = tiles.side(size), math.prod(batch)
    if count == 0:
        return a
    more = (0, side - size)
    own = jnp.diag((jnp.arange(side) >= size).astype(a.dtype))
    wide = jnp.pad(a.reshape(count, size, size), [(0, 0), more, more]) + own[None]

    def body(a_ref, factor_ref):
        factor_ref[...] = tiles.inverse_cholesky(tiles.symmetrize(a_ref[...]))

    one = pl.BlockSpec((None, side, side), lambda i: (i, 0, 0))
    factor = pl.pallas_call(
        body,
        grid=(count,),
        in_specs=[one],
        out_specs=one,
        out_shape=jax.ShapeDtypeStruct(wide.shape, a.dtype),
        **backend_options(side * side),
    )(wide)
    return factor[:, :size, :size].reshape(a.shape)


def backend_options(largest: int) -> dict[str, Any]:
    """How to compile a kernel here, whose largest tile has so many entries."""
    if jax.default_backend() == "cpu":
        return {"interpret": True}
    num_warps = max(1, min(8, largest // 2048))
    return {"compiler_params": triton.CompilerParams(num_warps=num_warps, num_stages=1)}
