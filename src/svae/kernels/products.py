"""Products of very many rows with one small matrix, in full precision, by a GPU's matrix units.

The units multiply numbers of eight bits, three of which hold a float32: with $a = a_1 + a_2 + a_3$ and
$b = b_1 + b_2 + b_3$, each part what eight bits hold of what the ones before it leave, the six $a_i b_j$ with
$i + j \\le 4$ are all of $ab$ that float32 can tell. That is faster than products in float32 by anything else
that a GPU has, if the small matrix comes in parts: to split it anew in each program takes longer than to
multiply.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from svae import linalg
from svae.kernels.tiles import backend_options, has_matrix_units, side

MANY = 4096  # rows; fewer do not keep a GPU busy
ROWS, DEPTH, WIDTH = 64, 32, 128  # of what a program multiplies at once, at most


def rows_times(rows: Float[Array, "*many f"], matrix: Float[Array, "f k"]) -> Float[Array, "*many k"]:
    """The product. All sequences of a batch are rows of one matrix, if they share the other."""
    return _product.bind(rows, matrix)


def _shape(rows: Any, matrix: Any) -> Any:
    return rows.update(shape=(*rows.shape[:-1], matrix.shape[-1]))


def _for_rows(bar: Array, rows: Any, matrix: Array) -> Array:
    return rows_times(bar, matrix.T)


def _for_matrix(bar: Array, rows: Array, matrix: Any) -> Array:
    return jnp.einsum("...f,...k->fk", rows, bar, precision=linalg.PRECISION)


def _mapped(given: tuple[Array, Array], axes: tuple[int | None, int | None]) -> tuple[Array, int]:
    if axes[1] is not None:  # each has a matrix of its own
        return jax.vmap(_plain, axes)(*given), 0
    return rows_times(jnp.moveaxis(given[0], axes[0] or 0, 0), given[1]), 0


def _plain(rows: Array, matrix: Array) -> Array:
    return _flat(linalg.matmul, rows, matrix)


def _on_gpu(rows: Array, matrix: Array) -> Array:
    many = math.prod(rows.shape[:-1])
    entries = many * max(matrix.shape)  # of the largest array, which a kernel counts in 32 bits
    fits = many >= MANY and entries < 1 << 31 and rows.dtype == jnp.float32 and has_matrix_units()
    return _flat(in_parts if fits else linalg.matmul, rows, matrix)


def _flat(product: Callable[[Array, Array], Array], rows: Array, matrix: Array) -> Array:
    *many, size = rows.shape  # there may be none
    return product(rows.reshape(math.prod(many), size), matrix).reshape(*many, matrix.shape[1])


# A primitive, as derivatives of derivatives and maps over batches must be such products again
_product = Primitive("rows_times")
_product.def_impl(jax.jit(rows_times))
_product.def_abstract_eval(_shape)
ad.defbilinear(_product, _for_rows, _for_matrix)
batching.primitive_batchers[_product] = _mapped
mlir.register_lowering(_product, mlir.lower_fun(_plain, multiple_results=False))
mlir.register_lowering(_product, mlir.lower_fun(_on_gpu, multiple_results=False), platform="cuda")


def in_parts(rows: Float[Array, "many f"], matrix: Float[Array, "f k"]) -> Float[Array, "many k"]:
    """The kernel."""
    (many, size), results = rows.shape, matrix.shape[1]
    depth, width = min(DEPTH, side(size)), min(WIDTH, side(results))
    steps, columns = pl.cdiv(size, depth), pl.cdiv(results, width)
    padding = [(0, steps * depth - size), (0, columns * width - results)]
    parts = _split(jnp.pad(matrix, padding))

    def body(rows_ref, *refs):
        *parts, out = refs
        first, left = pl.program_id(0) * ROWS, pl.program_id(1) * width
        below = lambda start, count, end: start + lax.iota(jnp.int32, count) < end
        inside = below(first, ROWS, many)[:, None]

        def step(i, total):
            at = pl.ds(i * depth, depth)
            there = inside & below(i * depth, depth, size)[None, :]
            a = _split(triton.load(rows_ref.at[pl.ds(first, ROWS), at], mask=there, other=0.0))
            b = [part[at, pl.ds(left, width)] for part in parts]
            # Each step anew, the smallest first: units that go on adding to a sum round it every time
            found = jnp.zeros((ROWS, width), rows.dtype)
            for m, n in ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)):
                found = found + jnp.dot(a[m], b[n], preferred_element_type=jnp.float32)
            return total + found

        total = lax.fori_loop(np.int32(0), np.int32(steps), step, jnp.zeros((ROWS, width), rows.dtype))
        there = inside & below(left, width, results)[None, :]
        triton.store(out.at[pl.ds(first, ROWS), pl.ds(left, width)], total, mask=there)

    whole = lambda shape: pl.BlockSpec(shape, lambda i, j: (0, 0))
    return pl.pallas_call(
        body,
        name="rows_times",
        grid=(pl.cdiv(many, ROWS), columns),
        in_specs=[whole(x.shape) for x in (rows, *parts)],
        out_specs=whole((many, results)),
        out_shape=jax.ShapeDtypeStruct((many, results), rows.dtype),
        **backend_options(num_warps=4, num_stages=2),
    )(rows, *parts)


def _split(a: Float[Array, "n m"]) -> list[Array]:
    """Three parts, the first the largest, whose sum is `a`. By bits, as compilers undo what roundings do."""
    parts = []
    for _ in range(3):
        bits = lax.bitcast_convert_type(a, jnp.int32) & -(1 << 16)
        part = lax.bitcast_convert_type(bits, jnp.float32)
        parts.append(part.astype(jnp.bfloat16))
        a = a - part
    return parts
