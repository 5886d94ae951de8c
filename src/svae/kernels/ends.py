"""Loops from both ends of a sequence at once: in plain form, or in one GPU kernel for many sequences.

    state = begin(matrix)
    for each step, in one loop from the first to the last, in the other from the last to the first:
        state, result = step(matrix, state, inputs)

The matrix is the same for all sequences, so that, where there are many, a program of the kernel takes several
of them: what is a vector here is a matrix there, with a row for each sequence, and vector times matrix is a
product for the GPU's matrix units. Where sequences have matrices of their own the plain form steps in.

Both functions take an algebra first: `svae.linalg`, `svae.kernels.tiles`, or this module.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from svae import linalg
from svae.kernels import tiles

ROWS = tiles.SMALLEST  # sequences of one program
MANY = 1024  # sequences; with fewer, programs of one sequence each are faster


@runtime_checkable
class FromBothEnds(Protocol):
    """How loops are run: `over(begin, step, matrices, inputs)`.

    There is a matrix for each direction. `inputs` have a leading axis of two directions, or of one if they
    are the same for both, then one of time, as the results have. Returns the last states and the results.
    """

    def __call__(
        self, begin: Callable, step: Callable, matrices: Float[Array, "2 k k"], inputs: Any
    ) -> tuple[Any, Any]:
        """Run both loops."""


# The algebra: rows of vectors


def vecmat(x: Float[Array, "rows k"], a: Float[Array, "k n"]) -> Float[Array, "rows n"]:
    """Vector times matrix."""
    return tiles.matmul(x, a)


def inner(x: Float[Array, "rows k"], y: Float[Array, "rows k"]) -> Float[Array, "rows"]:
    """x'y."""
    return jnp.sum(x * y, axis=1)


def where(condition: Array, x: Array, y: Array) -> Array:
    """`x` where the condition holds, `y` elsewhere."""
    return jnp.where(condition[:, None], x, y)


def plain(begin: Callable, step: Callable, matrices: Float[Array, "2 k k"], inputs: Any) -> tuple[Any, Any]:
    """Two scans."""
    turned = jax.tree.map(lambda x: jnp.stack([x[0], jnp.flip(x[-1], axis=0)]), inputs)

    def run(matrix, inputs):
        vector = jnp.zeros_like(matrix[0])
        return lax.scan(partial(step, linalg, matrix), begin(linalg, vector), inputs)

    states, results = jax.vmap(run)(matrices, turned)
    return states, jax.tree.map(lambda x: jnp.stack([x[0], jnp.flip(x[1], axis=0)]), results)


def kernel(begin: Callable, step: Callable, matrices: Float[Array, "2 k k"], inputs: Any) -> tuple[Any, Any]:
    """One kernel for a whole batch."""

    @jax.custom_batching.custom_vmap
    def run(matrices, inputs):
        batch = jax.tree.map(lambda x: x[None], inputs)
        return jax.tree.map(lambda x: x[0], _run(begin, step, matrices, batch))

    @run.def_vmap
    def _(size, batched, matrices, inputs):
        if batched[0]:
            axes = jax.tree.map(lambda x: 0 if x else None, batched)
            found = jax.vmap(partial(plain, begin, step), tuple(axes))(matrices, inputs)
        else:
            spread = lambda x, own: x if own else jnp.broadcast_to(x, (size, *x.shape))
            found = _run(begin, step, matrices, jax.tree.map(spread, inputs, batched[1]))
        return found, jax.tree.map(lambda x: True, found)

    return run(matrices, inputs)


def _run(begin: Callable, step: Callable, matrices: Float[Array, "2 k k"], inputs: Any) -> tuple[Any, Any]:
    """`inputs` have a leading axis of sequences, `matrices` are for all of them."""
    leaves, structure = jax.tree.flatten(inputs)
    count, length, size = leaves[0].shape[0], leaves[0].shape[2], matrices.shape[-1]
    together = count >= MANY
    algebra = sys.modules[__name__] if together else tiles
    rows = (ROWS,) if together else ()  # of a program's vectors
    nothing = lambda matrix: begin(algebra, jnp.zeros((*rows, size), matrix.dtype))
    last, result = jax.eval_shape(
        lambda matrix, inputs: step(algebra, matrix, nothing(matrix), inputs),
        jax.ShapeDtypeStruct((size, size), matrices.dtype),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct((*rows, *x.shape[3:]), x.dtype), inputs),
    )
    results, states = jax.tree.leaves(result), jax.tree.leaves(last)
    warps = max(1, size * size // 4096) * (4 if together else 1)

    def body(matrix_ref, *refs):
        read, written = refs[: len(leaves)], refs[len(leaves) :]
        direction, program = pl.program_id(0), pl.program_id(1)
        # the last program ends with the last sequence, and does some of those before it once more
        own = pl.ds(jnp.minimum(program * ROWS, count - ROWS), ROWS) if together else program
        # No `where(direction == 0, ...)`: compiled for a GPU (JAX 0.11.2) that took the first of both always
        at = lambda i: i + direction * (length - 1 - 2 * i)
        rest = lambda shape: (slice(None),) * len(shape)
        matrix = matrix_ref[direction, :, :]

        def load(i):
            found = [
                ref[(own, direction if x.shape[1] == 2 else 0, at(i), *rest(x.shape[3:]))]
                for ref, x in zip(read, leaves, strict=True)
            ]
            return jax.tree.unflatten(structure, found)

        def one(i, carry):
            state, now = carry
            ahead = load(jnp.minimum(i + 1, length - 1))
            state, values = step(algebra, matrix, state, now)
            for ref, value in zip(written[: len(results)], jax.tree.leaves(values), strict=True):
                ref[(own, direction, at(i), *rest(value.shape[len(rows) :]))] = value
            return state, ahead

        state, _ = lax.fori_loop(0, length, one, (nothing(matrix), load(0)))
        for ref, value in zip(written[len(results) :], jax.tree.leaves(state), strict=True):
            ref[(own, direction, *rest(value.shape[len(rows) :]))] = value

    whole = lambda x: pl.BlockSpec(x.shape, lambda *_: (0,) * len(x.shape))
    shape = lambda x, *middle: jax.ShapeDtypeStruct((count, 2, *middle, *x.shape[len(rows) :]), x.dtype)
    outputs = [shape(x, length) for x in results] + [shape(x) for x in states]
    found = pl.pallas_call(
        body,
        name=step.__name__.strip("_"),
        grid=(2, pl.cdiv(count, ROWS) if together else count),
        in_specs=[whole(x) for x in (matrices, *leaves)],
        out_specs=[whole(x) for x in outputs],
        out_shape=outputs,
        **tiles.backend_options(warps),
    )(matrices, *leaves)
    return (
        jax.tree.unflatten(jax.tree.structure(last), found[len(results) :]),
        jax.tree.unflatten(jax.tree.structure(result), found[: len(results)]),
    )
