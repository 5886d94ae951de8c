r"""Maps between unconstrained reals and constrained parameters, each with its inverse.

| constraint | map |
|---|---|
| $x > m$ | `softplus` $+ m$ |
| probabilities | `softmax` with a last logit of 0 (in `categorical`) |
| positive definite | $S = D\, ((1 - \epsilon) L L^\top + \epsilon I)\, D$, with $D = \mathrm{diag}(\sigma)$ |

A positive definite matrix of size n travels as a vector of n(n+1)/2 reals: first the n that `softplus`
turns into scales $\sigma$, then the strictly lower entries of a unit lower triangular matrix whose rows,
brought to length one, are the Cholesky factor L of the correlation matrix. That has no eigenvalue below a
few units of rounding, $\epsilon$: of less, the products here and in all that follows would leave nothing, or
a matrix that is not positive definite.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from svae import linalg


def above_from_unconstrained(unconstrained: Float[Array, "*n"], minimum: float) -> Float[Array, "*n"]:
    """Reals above `minimum`."""
    return jax.nn.softplus(unconstrained) + minimum


def unconstrained_from_above(value: Float[Array, "*n"], minimum: float) -> Float[Array, "*n"]:
    """The inverse of softplus, exact for small and for large values."""
    excess = value - minimum
    return excess + jnp.log(-jnp.expm1(-excess))


def spd_from_unconstrained(packed: Float[Array, "*batch p"], minimum: float) -> Float[Array, "*batch n n"]:
    """Positive definite matrix whose eigenvalues exceed `minimum`."""
    size = spd_size(packed.shape[-1])
    scale = jax.nn.softplus(packed[..., :size])
    empty = jnp.zeros((*packed.shape[:-1], size, size), packed.dtype)
    rows = empty.at[(..., *np.tril_indices(size, -1))].set(packed[..., size:]) + linalg.identity_like(empty)
    factor = rows / jnp.sqrt(jnp.sum(rows**2, axis=-1, keepdims=True))
    least, eye = least_correlation(packed.dtype), linalg.identity_like(empty)
    correlation = (1 - least) * linalg.matmul(factor, linalg.transpose(factor)) + least * eye
    return linalg.symmetrize(linalg.outer(scale, scale) * correlation) + minimum * eye


def unconstrained_from_spd(matrix: Float[Array, "*batch n n"], minimum: float) -> Float[Array, "*batch p"]:
    """The inverse of `spd_from_unconstrained`; NaN where the matrix is out of its range.

    A matrix that is outside by rounding alone gives one just inside.
    """
    size, eye, least = matrix.shape[-1], linalg.identity_like(matrix), least_correlation(matrix.dtype)
    matrix = linalg.symmetrize(matrix) - minimum * eye
    scale = jnp.sqrt(linalg.diagonal(matrix))
    correlation = matrix / linalg.outer(scale, scale)
    either = jnp.stack([(correlation - least * eye) / (1 - least), correlation + least * eye])
    exact, safe = linalg.cholesky(either)  # at once: half as much to compile
    pivots = linalg.diagonal(exact) ** 2
    inside = jnp.all(pivots > least, axis=-1)[..., None, None]  # smaller ones are rounding, as NaN is here
    factor = jnp.where(inside, exact, safe)
    rows = factor / linalg.diagonal(factor)[..., :, None]
    lower = rows[(..., *np.tril_indices(size, -1))]
    return jnp.concatenate([unconstrained_from_above(scale, 0.0), lower], axis=-1)


def least_correlation(dtype: Any) -> float:
    """The least eigenvalue of a correlation matrix: a few units of rounding."""
    return 64 * float(jnp.finfo(dtype).eps)


def spd_size(packed_size: int) -> int:
    """The n of n(n+1)/2."""
    size = int((np.sqrt(8 * packed_size + 1) - 1) / 2)
    if size * (size + 1) // 2 != packed_size:
        raise ValueError(f"a packed positive definite matrix has n(n+1)/2 entries, got {packed_size}")
    return size
