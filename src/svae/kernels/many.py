"""A function of a small matrix, of many matrices in one kernel."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from svae.kernels import tiles
from svae.kernels.tiles import backend_options, warps_for

TOGETHER = 64  # programs of a kernel, or a multiple: fewer kernels differ then, and need to be compiled


def each(function: Callable[[Array], Any], a: Float[Array, "*batch n n"]) -> Any:
    """What the function of `svae.kernels.tiles` makes of each: numbers, or matrices of the same size."""

    @jax.custom_batching.custom_vmap
    def run(a):
        batch, size = a.shape[:-2], a.shape[-1]
        found = _run(function, a.reshape(math.prod(batch), size, size))
        return jax.tree.map(
            lambda x: x[:, :size, :size].reshape(a.shape) if x.ndim == 3 else x.reshape(batch), found
        )

    @run.def_vmap
    def _(size, batched, a):
        found = run(a)
        return found, jax.tree.map(lambda x: True, found)

    return run(a)


def _run(function: Callable[[Array], Any], a: Float[Array, "many n n"]) -> Any:
    count, size = a.shape[:2]
    side, programs = tiles.side(size), -(-count // TOGETHER) * TOGETHER
    tile = jax.ShapeDtypeStruct((side, side), a.dtype)
    results = jax.eval_shape(function, tile)
    if count == 0:
        return jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), results)
    own = jnp.diag((jnp.arange(side) >= size).astype(a.dtype))
    wide = jnp.pad(a, [(0, 0), (0, side - size), (0, side - size)]) + own[None]
    wide = jnp.pad(wide, [(0, programs - count), (0, 0), (0, 0)], mode="edge")

    def body(a_ref, *refs):
        found = function(tiles.symmetrize(a_ref[...]))
        for ref, x in zip(refs, jax.tree.leaves(found), strict=True):
            ref[...] = x

    block = lambda x: pl.BlockSpec((None, *x.shape), lambda i: (i,) + (0,) * len(x.shape))
    leaves, structure = jax.tree.flatten(results)
    found = pl.pallas_call(
        body,
        name=function.__name__,
        grid=(programs,),
        in_specs=[block(tile)],
        out_specs=[block(x) for x in leaves],
        out_shape=[jax.ShapeDtypeStruct((programs, *x.shape), x.dtype) for x in leaves],
        **backend_options(warps_for(side * side)),
    )(wide)
    return jax.tree.unflatten(structure, [x[:count] for x in found])
