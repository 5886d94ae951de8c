r"""Small symmetric positive definite matrices, batched, in plain `lax` operations.

Two factorisations, by one elimination: the inverse itself with the log-determinant, and the inverse
Cholesky factor, the lower triangular $W$ with $W A W^\top = I$.

No LAPACK: at these sizes (up to a few dozen rows) a loop of updates of low rank over the whole batch is as
fast, and LAPACK calls from several XLA threads at once can hang on machines with few cores.

**Bad input is never hidden.** A matrix that is not positive definite, or holds NaN, gives a result that
is NaN in every entry of that matrix; the other matrices of the batch are untouched.

All functions read the symmetric part of their argument, return exactly symmetric results where the
result is symmetric, and have closed-form derivatives in both modes, so nothing is taped.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from svae.kernels import many, tiles

# Matrix products here feed recursions: always in full precision, also where the hardware would by default
# round float32 inputs (TF32).
PRECISION = lax.Precision.HIGHEST


def matmul(a: Float[Array, "*batch n k"], b: Float[Array, "*batch k m"]) -> Float[Array, "*batch n m"]:
    """Matrix product in full precision."""
    if 4 <= max(*a.shape[-2:], b.shape[-1]) < 8:  # on CPUs XLA takes ten times as long for these sizes
        return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)
    return jnp.matmul(a, b, precision=PRECISION)


def matvec(a: Float[Array, "*batch n k"], x: Float[Array, "*batch k"]) -> Float[Array, "*batch n"]:
    """Matrix times vector in full precision."""
    return matmul(a, x[..., None])[..., 0]


def vecmat(x: Float[Array, "*batch k"], a: Float[Array, "*batch k n"]) -> Float[Array, "*batch n"]:
    """Vector times matrix in full precision."""
    return matmul(x[..., None, :], a)[..., 0, :]


def transpose(a: Float[Array, "*batch n m"]) -> Float[Array, "*batch m n"]:
    """Transpose of the last two axes."""
    return jnp.swapaxes(a, -1, -2)


def inner(x: Float[Array, "*batch n"], y: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """Inner product $x^T y$."""
    return jnp.sum(x * y, axis=-1)


def outer(x: Float[Array, "*batch n"], y: Float[Array, "*batch m"]) -> Float[Array, "*batch n m"]:
    """Outer product $x y^T$."""
    return x[..., :, None] * y[..., None, :]


def where(condition: Bool[Array, "*batch"], x: Array, y: Array) -> Array:
    """`x` where the condition holds, which has the leading axes alone, `y` elsewhere."""
    return jnp.where(condition.reshape(condition.shape + (1,) * (x.ndim - condition.ndim)), x, y)


def symmetrize(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Symmetric part, exactly symmetric."""
    return 0.5 * (a + transpose(a))


def symmetric(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """A matrix that is symmetric but for rounding, made exactly so."""
    return symmetrize(a)


def diagonal(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n"]:
    """Diagonals, by a strided slice: programs are shorter than with the gather of `jnp.diagonal`."""
    size = a.shape[-1]
    return a.reshape(*a.shape[:-2], size * size)[..., :: size + 1]


def identity_like(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Identity matrices in the shape and type of `a`."""
    return jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)


# A program has dozens of factorisations of few shapes: `jit` traces each shape once.
@jax.jit
def inverse_cholesky(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Lower triangular W with W A W' = I; all NaN where A is not positive definite."""
    return _inverse_cholesky(a)


@jax.custom_jvp
def _inverse_cholesky(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    if _in_kernel(a):
        return many.each(tiles.inverse_cholesky, a)
    index = jnp.arange(a.shape[-1])
    # Of rows below the pivot's alone: that leaves D L' above and, below, what L^-1 has beside its ones
    work, pivots, scale = _eliminated(a, lambda k, pivot, column: jnp.where(index > k, column, 0))
    unit = jnp.where(_along(index[:, None] > index[None, :], work), work, identity_like(work))
    return _where_sound(pivots, unit * scale[..., None, :] / jnp.sqrt(pivots)[..., :, None])


def _in_kernel(a: Array) -> bool:
    return jax.default_backend() == "gpu" and a.shape[-1] <= tiles.LARGEST and tiles.can_hold(a.dtype)


def _eliminated(
    a: Float[Array, "*batch n n"], rows: Callable[[Any, Array, Array], Array]
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch n"], Float[Array, "*batch n"]]:
    """A scaled to have ones on its diagonal, S A S, after each pivot's elimination; the pivots; and S.

    With the pivot p = A_kk that is A - u v' / p: u is column k, of the `rows` that shall change, and v is
    row k with p + 1 in place k, so that column k becomes -u / p, in the room that is freed. That is exact
    to rounding for p of at most one. Two pivots go at a time, which takes half as many passes over A.
    """
    size = a.shape[-1]
    index = jnp.arange(size)
    at = partial(lax.dynamic_index_in_dim, keepdims=False, allow_negative_indices=False)
    scale = lax.rsqrt(diagonal(a))

    def factors(k, pivot, inverse, row, column):
        return rows(k, pivot, column), jnp.where(index == k, pivot + 1, row) * inverse

    def eliminate(i, carry):
        work, pivots = carry
        j, k = 2 * i, 2 * i + 1
        row, column, next_row, next_column = (
            at(work, j, -2),
            at(work, j, -1),
            at(work, k, -2),
            at(work, k, -1),
        )
        pivot, between = at(row, j, -1)[..., None], at(row, k, -1)[..., None]
        inverse = 1 / pivot  # compilers would repeat a division for each entry of A
        next_pivot = at(next_row, k, -1)[..., None] - between * between * inverse
        u, v = factors(j, pivot, inverse, row, column)
        # What the first elimination makes of the second row and column
        next_row, next_column = next_row - between * v, next_column - u * (between * inverse)
        next_u, next_v = factors(k, next_pivot, 1 / next_pivot, next_row, next_column)
        pivots = jnp.where(index == j, pivot, jnp.where(index == k, next_pivot, pivots))
        return work - outer(u, v) - outer(next_u, next_v), pivots

    work = symmetrize(a) * scale[..., :, None] * scale[..., None, :]
    work, pivots = lax.fori_loop(0, size // 2, eliminate, (work, jnp.ones_like(scale)))
    if size % 2:
        row, column, pivot = work[..., -1, :], work[..., :, -1], work[..., -1, -1:]
        pivots = jnp.where(index == size - 1, pivot, pivots)
        work = work - outer(*factors(size - 1, pivot, 1 / pivot, row, column))
    return work, pivots, scale


def _where_sound(pivots: Float[Array, "*batch n"], result: Array) -> Array:
    """The result where A was positive definite, NaN elsewhere."""
    sound = jnp.all((pivots > 0) & (pivots < jnp.inf), axis=-1)
    return jnp.where(sound.reshape(sound.shape + (1,) * (result.ndim - sound.ndim)), result, jnp.nan)


def _along(mask: Array, like: Array) -> Array:
    """Give a mask over the trailing axes the rank of `like`."""
    return mask.reshape((1,) * (like.ndim - mask.ndim) + mask.shape)


@_inverse_cholesky.defjvp
def _inverse_cholesky_jvp(primals, tangents):
    # With A = L L' and W = L^-1:  dL = L Phi(W dA W'),  dW = -Phi(W dA W') W,
    # where Phi keeps the lower triangle and halves the diagonal.
    (a,), (tangent,) = primals, tangents
    factor = inverse_cholesky(a)
    middle = matmul(matmul(factor, symmetrize(tangent)), transpose(factor))
    lower = jnp.tril(middle) - 0.5 * identity_like(middle) * middle
    return factor, -matmul(lower, factor)


def cholesky(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Lower triangular L with A = L L'; all NaN where A is not positive definite."""
    factor = matmul(symmetrize(a), transpose(inverse_cholesky(a)))
    return factor * jnp.tril(jnp.ones_like(factor))  # not `tril`, which would put zeros over NaN


@jax.jit
def inverse_and_log_det(
    a: Float[Array, "*batch n n"],
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch"]]:
    """Inverse and log-determinant from one elimination."""
    return _inverse_and_log_det(a)


@jax.custom_jvp
def _inverse_and_log_det(
    a: Float[Array, "*batch n n"],
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch"]]:
    if _in_kernel(a):
        inv, log_determinant = many.each(tiles.inverse_and_log_det, a)
        return symmetrize(inv), log_determinant
    index = jnp.arange(a.shape[-1])
    # Gauss-Jordan: of all rows; p - 1 in place k divides the pivot's own row by p
    work, pivots, scale = _eliminated(a, lambda k, pivot, column: jnp.where(index == k, pivot - 1, column))
    inv = symmetrize(work) * (scale[..., :, None] * scale[..., None, :])
    log_determinant = jnp.sum(jnp.log(pivots) - 2 * jnp.log(scale), axis=-1)
    return _where_sound(pivots, inv), _where_sound(pivots, log_determinant)


@_inverse_and_log_det.defjvp
def _inverse_and_log_det_jvp(primals, tangents):
    # dA^-1 = -A^-1 dA A^-1,  d log|A| = <A^-1, dA>
    (a,), (tangent,) = primals, tangents
    inv, log_determinant = inverse_and_log_det(a)
    tangent = symmetrize(tangent)
    change = -symmetrize(matmul(matmul(inv, tangent), inv))
    return (inv, log_determinant), (change, jnp.sum(inv * tangent, axis=(-2, -1)))


def inverse(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Inverse, exactly symmetric."""
    return inverse_and_log_det(a)[0]


def log_det(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch"]:
    """Log-determinant."""
    return inverse_and_log_det(a)[1]


def solve(a: Float[Array, "*batch n n"], b: Float[Array, "*batch n m"]) -> Float[Array, "*batch n m"]:
    """The X with A X = B."""
    factor = inverse_cholesky(a)
    return matmul(transpose(factor), matmul(factor, b))


def is_positive_definite(a: Float[Array, "*batch n n"]) -> Bool[Array, "*batch"]:
    """Whether each matrix is finite, symmetric to rounding, and positive definite."""
    scale = jnp.max(jnp.abs(a), axis=(-2, -1))
    tolerance = 1e3 * jnp.finfo(a.dtype).eps * scale
    symmetric = jnp.max(jnp.abs(a - transpose(a)), axis=(-2, -1)) <= tolerance
    return symmetric & jnp.all(jnp.isfinite(inverse_cholesky(a)), axis=(-2, -1))
