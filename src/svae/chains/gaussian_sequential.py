"""A Gaussian chain, node after node: each is eliminated when it has no left neighbour any more.

The formulas are those of `svae.chains.gaussian_nodes` without that neighbour.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from svae import linalg
from svae.chains.gaussian_nodes import log_partition
from svae.linalg import matmul, matvec, symmetrize, transpose


class Information(NamedTuple):
    """A chain's potentials: J_t, h_t, and the edges N_t, of which the last leads nowhere and is zero."""

    precision: Float[Array, "time n n"]
    linear: Float[Array, "time n"]
    edge: Float[Array, "time n n"]


class Moments(NamedTuple):
    """Means, covariances and Cov(z_t, z_{t+1}), of which the last is zero."""

    mean: Float[Array, "time n"]
    covariance: Float[Array, "time n n"]
    cross: Float[Array, "time n n"]


class Conditionals(NamedTuple):
    """z_t | z_{t+1} ~ N(gain z_{t+1} + offset, covariance)."""

    gain: Float[Array, "time n n"]
    offset: Float[Array, "time n"]
    covariance: Float[Array, "time n n"]


class Factors(NamedTuple):
    """What `change` is made of."""

    conditionals: Conditionals
    moments: Moments


def _eliminate(information: Information) -> tuple[Float[Array, ""], Conditionals]:
    def step(message, node):
        (from_left, shift), (precision, linear, edge) = message, node
        linear = linear + shift
        covariance, log_det = linalg.inverse_and_log_det(precision - from_left)
        gain, offset = matmul(covariance, edge), matvec(covariance, linear)
        message = symmetrize(matmul(transpose(edge), gain)), matvec(transpose(edge), offset)
        own = log_partition(linalg, linear, offset, log_det)
        return message, (own, Conditionals(gain, offset, covariance))

    _, (own, conditionals) = lax.scan(step, _nothing(information), information)
    return jnp.sum(own), conditionals


def smooth(information: Information) -> tuple[Float[Array, ""], Factors]:
    """Log-partition (less log(2 pi)/2 for each variable), moments, and what `change` needs."""
    total, conditionals = _eliminate(information)

    def step(after, conditional):
        (covariance, mean), (gain, offset, own) = after, conditional
        mean = offset + matvec(gain, mean)
        cross = matmul(gain, covariance)
        covariance = own + symmetrize(matmul(cross, transpose(gain)))
        return (covariance, mean), Moments(mean, covariance, cross)

    _, moments = lax.scan(step, _nothing(information), conditionals, reverse=True)
    return total, Factors(conditionals, moments)


def change(factors: Factors, given: Information) -> Moments:
    """How the moments answer a change of the potentials."""
    (gain, offset, covariance), moments = factors

    # dP_t = dJ_t - d(N' C N),  with d(N' C N) = G' S + dN' G  and  S = dN - dP G
    def forward(message, node):
        from_left, shift = message
        (gain, offset), own = node
        precision, linear, edge = own.precision - from_left, own.linear + shift, own.edge
        edge_shift = edge - matmul(precision, gain)
        linear_shift = linear - matvec(precision, offset)
        message = (
            symmetrize(matmul(transpose(gain), edge_shift) + matmul(transpose(edge), gain)),
            matvec(transpose(gain), linear_shift) + matvec(transpose(edge), offset),
        )
        return message, (precision, edge_shift, linear_shift)

    start = _nothing(given)
    _, (precision, edge_shift, linear_shift) = lax.scan(forward, start, ((gain, offset), given))
    moved = Conditionals(
        matmul(covariance, edge_shift),
        matvec(covariance, linear_shift),
        -symmetrize(matmul(matmul(covariance, precision), covariance)),
    )
    # The parts of the moments' change that are there at once, without recursion
    covariance_after = jnp.concatenate([moments.covariance[1:], jnp.zeros_like(moments.covariance[:1])])
    mean_after = jnp.concatenate([moments.mean[1:], jnp.zeros_like(moments.mean[:1])])
    own = Moments(
        moved.offset + matvec(moved.gain, mean_after),
        moved.covariance + 2 * symmetrize(matmul(moved.gain, transpose(moments.cross))),
        matmul(moved.gain, covariance_after),
    )

    def backward(after, node):
        (covariance, mean), (gain, own) = after, node
        through = matmul(gain, covariance)
        mean = own.mean + matvec(gain, mean)
        covariance = own.covariance + symmetrize(matmul(through, transpose(gain)))
        return (covariance, mean), Moments(mean, covariance, own.cross + through)

    return lax.scan(backward, start, (gain, own), reverse=True)[1]


def draw(information: Information, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    """A path, an affine map of the noise."""
    _, (gain, offset, covariance) = _eliminate(information)
    shocks = offset + matvec(linalg.cholesky(covariance), noise)

    def step(after, x):
        gain, shock = x
        value = matvec(gain, after) + shock
        return value, value

    return lax.scan(step, jnp.zeros_like(shocks[0]), (gain, shocks), reverse=True)[1]


def _nothing(information: Information) -> tuple[Array, Array]:
    """A matrix and a vector of zeros."""
    return jax.tree.map(lambda x: jnp.zeros_like(x[0]), (information.precision, information.linear))
