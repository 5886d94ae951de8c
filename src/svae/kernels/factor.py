"""The inverse Cholesky factors of many small matrices in one kernel."""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from svae.kernels import tiles
from svae.kernels.tiles import backend_options, warps_for


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
        **backend_options(warps_for(side * side)),
    )(wide)
    return factor[:, :size, :size].reshape(a.shape)
