"""`svae.linalg` for one small matrix that a GPU program holds in its registers.

Compilers for such programs know matrix products, sums and masks, but no indexing into a matrix. Sides are
powers of two, at least 16. Products are made of three in the matrix units' reduced precision, which
together have that of float32.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

SMALLEST, LARGEST = 16, 64  # sides that the products take, and that registers hold
OLDEST = 8.0  # compute capability of GPUs that kernels are for


def side(size: int) -> int:
    """The next size that a tile can have."""
    return max(SMALLEST, 1 << (size - 1).bit_length())


def can_hold(dtype: Any) -> bool:
    """Double precision is for interpreted kernels."""
    return dtype == jnp.float32 or jax.default_backend() == "cpu"


def has_matrix_units() -> bool:
    """Whether this machine's GPU multiplies bfloat16 and TF32, as those since 2020 do.

    What is compiled here for a GPU elsewhere is for one that does.
    """
    if jax.default_backend() != "gpu":
        return True
    capability = str(getattr(jax.devices()[0], "compute_capability", OLDEST))  # other makers' are names
    return capability[0].isdigit() and float(capability) >= OLDEST


def backend_options(num_warps: int, num_stages: int = 1) -> dict[str, Any]:
    """How to compile a kernel here: for a GPU, or, where there is none, not at all."""
    if jax.default_backend() == "cpu":
        return {"interpret": True}
    return {"compiler_params": triton.CompilerParams(num_warps=num_warps, num_stages=num_stages)}


def warps_for(largest: int) -> int:
    """For a program whose largest tile has so many entries: as few as can hold it."""
    return max(1, min(8, largest // 2048))


def precision() -> lax.Precision | lax.DotAlgorithmPreset:
    """Of products: full."""
    interpreted = jax.default_backend() == "cpu"
    return lax.Precision.HIGHEST if interpreted else lax.DotAlgorithmPreset.TF32_TF32_F32_X3


def matmul(a: Float[Array, "n k"], b: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """Matrix product."""
    return jnp.dot(a, b, precision=precision())


def matvec(a: Float[Array, "n k"], x: Float[Array, "k"]) -> Float[Array, "n"]:
    """Matrix times vector."""
    return jnp.sum(a * x[None, :], axis=1)


def vecmat(x: Float[Array, "k"], a: Float[Array, "k n"]) -> Float[Array, "n"]:
    """Vector times matrix."""
    return jnp.sum(x[:, None] * a, axis=0)


def outer(x: Float[Array, "n"], y: Float[Array, "m"]) -> Float[Array, "n m"]:
    """x y'."""
    return x[:, None] * y[None, :]


def where(condition: Any, x: Array, y: Array) -> Array:
    """`x` if the condition holds, `y` elsewhere."""
    return jnp.where(condition, x, y)


def identity_like(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The identity."""
    rows, columns = _rows_and_columns(a)
    return jnp.where(rows == columns, 1.0, 0.0).astype(a.dtype)


def inner(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """x'y."""
    return jnp.sum(x * y)


def transpose(a: Float[Array, "n m"]) -> Float[Array, "m n"]:
    """Transpose."""
    return a.T


def symmetrize(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Symmetric part."""
    return 0.5 * (a + a.T)


def symmetric(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A matrix that is symmetric but for rounding, as it is."""
    return a


def _rows_and_columns(a: Float[Array, "n n"]) -> tuple[Array, Array]:
    return lax.broadcasted_iota(jnp.int32, a.shape, 0), lax.broadcasted_iota(jnp.int32, a.shape, 1)


@jax.custom_jvp
def inverse_cholesky(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower triangular W with W A W' = I; all NaN where A is not positive definite."""
    rows, columns = _rows_and_columns(a)

    # [A | I] -> [D L' | L^-1] in place, as in `svae.linalg`; rows are scaled by 1 / sqrt(pivot) as they are
    # done. Two at a time, because what takes long is to get rows and columns out of a tile, one after the
    # other or both at once. Nothing here is a vector for longer than it takes to spread it over the tile
    # again: compilers would move it through memory.
    def eliminate(i, work):
        j, k = 2 * i, 2 * i + 1
        row = lambda j: jnp.sum(jnp.where(rows == j, work, 0), axis=0)[None, :]
        column = lambda j: jnp.sum(jnp.where(columns == j, work, 0), axis=1)[:, None]
        entry = lambda j, k: jnp.sum(jnp.where((rows == j) & (columns == k), work, 0))
        first_row, second_row, first_column, second_column = row(j), row(k), column(j), column(k)
        first_pivot, between, second_pivot = entry(j, j), entry(k, j), entry(k, k)
        scale = lax.rsqrt(first_pivot)
        share = between * scale
        first_row = jnp.where(columns == j, scale, first_row * scale)
        first_column = first_column * scale
        next_scale = lax.rsqrt(second_pivot - share * share)
        second_row = jnp.where(columns == j, 0, second_row) - share * first_row
        second_row = jnp.where(columns == k, next_scale, second_row * next_scale)
        second_column = (second_column - first_column * share) * next_scale
        below = jnp.where(columns == j, 0, work) - first_column * first_row
        below = jnp.where(columns == k, 0, below) - second_column * second_row
        done = jnp.where(rows == j, first_row, jnp.where(rows == k, second_row, work))
        return jnp.where(rows > k, below, done)

    work = lax.fori_loop(0, a.shape[0] // 2, eliminate, a)
    factor = jnp.where(columns <= rows, work, 0)
    # rsqrt of anything but a positive number is NaN or infinite; one such entry spoils them all
    return factor + jnp.sum(factor * 0)


@inverse_cholesky.defjvp
def _inverse_cholesky_jvp(primals, tangents):
    # dW = -Phi(W dA W') W, where Phi keeps the lower triangle and halves the diagonal
    (a,), (tangent,) = primals, tangents
    factor = inverse_cholesky(a)
    rows, columns = _rows_and_columns(a)
    middle = matmul(matmul(factor, symmetrize(tangent)), transpose(factor))
    lower = jnp.where(columns < rows, middle, jnp.where(columns == rows, 0.5 * middle, 0))
    return factor, -matmul(lower, factor)


def inverse_and_log_det(a: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """Inverse and log-determinant, all NaN where A is not positive definite.

    By Gauss-Jordan elimination in place: with a pivot p = A_kk, A - u v'/p is A with row and column k
    eliminated, if u is column k with p - 1 in place k, and v is row k with p + 1 there. That is exact to
    rounding only for p of at most one, so the diagonal is scaled to ones first. Two pivots at a time, because
    what takes long is to get rows and columns out of a tile, one after the other or both at once.
    """
    rows, columns = _rows_and_columns(a)
    along = lax.broadcasted_iota(jnp.int32, (1, a.shape[0]), 1)
    down = lax.broadcasted_iota(jnp.int32, (a.shape[0], 1), 0)
    diagonal = jnp.where(rows == columns, a, 0)
    scale_along = lax.rsqrt(jnp.sum(diagonal, axis=0))[None, :]
    scale_down = lax.rsqrt(jnp.sum(diagonal, axis=1))[:, None]

    def eliminate(i, carry):
        work, pivots = carry
        j, k = 2 * i, 2 * i + 1
        row = lambda j: jnp.sum(jnp.where(rows == j, work, 0), axis=0)[None, :]
        column = lambda j: jnp.sum(jnp.where(columns == j, work, 0), axis=1)[:, None]
        entry = lambda row, j: jnp.sum(jnp.where(along == j, row, 0))
        first_row, second_row, first_column, second_column = row(j), row(k), column(j), column(k)
        pivot, between = entry(first_row, j), entry(first_row, k)
        inverse = 1 / pivot
        next_pivot = entry(second_row, k) - between * between * inverse
        u = jnp.where(down == j, pivot - 1, first_column)
        v = jnp.where(along == j, pivot + 1, first_row) * inverse
        # what the first elimination makes of the second row and column
        second_row = second_row - between * v
        second_column = second_column - u * (between * inverse)
        next_u = jnp.where(down == k, next_pivot - 1, second_column)
        next_v = jnp.where(along == k, next_pivot + 1, second_row) * (1 / next_pivot)
        pivots = jnp.where(along == j, pivot, jnp.where(along == k, next_pivot, pivots))
        return work - u * v - next_u * next_v, pivots

    begin = a * scale_along * scale_down, jnp.ones_like(scale_along)
    work, pivots = lax.fori_loop(0, a.shape[0] // 2, eliminate, begin)
    log_pivots = jnp.where(pivots > 0, jnp.log(pivots), jnp.nan)
    log_det = jnp.sum(log_pivots - 2 * jnp.log(scale_along))
    return work * scale_along * scale_down + 0 * log_det, log_det
