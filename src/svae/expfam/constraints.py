r"""Maps between unconstrained reals and constrained parameters, each with its inverse.

| constraint | map |
|---|---|
| $x > m$ | `softplus` $+ m$ |
| probabilities | `softmax` with a last logit of 0 (in `categorical`) |
| positive definite | $S = \mathrm{diag}(\sigma)\, L L^\top \mathrm{diag}(\sigma)$: scales, correlations |

A positive definite matrix of size n travels as a vector of n(n+1)/2 reals: first the n that `softplus`
turns into scales $\sigma$, then the strictly lower entries of a unit lower triangular matrix whose rows,
brought to length one, are the Cholesky factor L of the correlation matrix.
"""

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
    length = jnp.sqrt(jnp.sum(rows**2, axis=-1, keepdims=True))
    factor = scale[..., :, None] * rows / length
    product = linalg.matmul(factor, linalg.transpose(factor))
    return linalg.symmetrize(product) + minimum * linalg.identity_like(empty)


def unconstrained_from_spd(matrix: Float[Array, "*batch n n"], minimum: float) -> Float[Array, "*batch p"]:
    """The inverse of `spd_from_unconstrained`; NaN where the matrix is out of its range."""
    size = matrix.shape[-1]
    matrix = linalg.symmetrize(matrix) - minimum * linalg.identity_like(matrix)
    scale = jnp.sqrt(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    factor = linalg.cholesky(matrix / linalg.outer(scale, scale))
    rows = factor / jnp.diagonal(factor, axis1=-2, axis2=-1)[..., :, None]
    lower = rows[(..., *np.tril_indices(size, -1))]
    return jnp.concatenate([unconstrained_from_above(scale, 0.0), lower], axis=-1)


def spd_size(packed_size: int) -> int:
    """The n of n(n+1)/2."""
    size = int((np.sqrt(8 * packed_size + 1) - 1) / 2)
    if size * (size + 1) // 2 != packed_size:
        raise ValueError(f"a packed positive definite matrix has n(n+1)/2 entries, got {packed_size}")
    return size
