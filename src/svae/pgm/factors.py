"""The factors that graphical models here are made of: expected log-densities, linear in every argument.

`theta` arguments are expected statistics of parameters and may carry a leading axis of states; the
result then has it last.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.chains import DiscreteChainTerms, GaussianChainTerms
from svae.expfam import LOG_2PI, DirichletTerms, MNIWTerms, NIWTerms
from svae.linalg import PRECISION


def normal_log_density(
    theta: NIWTerms, first: Float[Array, "time n"], second: Float[Array, "time n n"]
) -> Float[Array, "time *k"]:
    """E log N(z_t; mu_k, Sigma_k)."""
    constant = theta.mean_weight + theta.weight - first.shape[-1] / 2 * LOG_2PI
    return _pair([(theta.first, first), (theta.second, second)], constant)


def transition_log_density(theta: MNIWTerms, chain: GaussianChainTerms) -> Float[Array, "time_minus_1 *k"]:
    """E log N(z_{t+1}; X_k [z_t; 1], Sigma_k)."""
    first, second, cross = chain
    one = jnp.ones_like(first[:-1, :1, None])
    output_input = jnp.concatenate([jnp.swapaxes(cross, 1, 2), first[1:, :, None]], axis=2)
    input_input = jnp.concatenate(
        [
            jnp.concatenate([second[:-1], first[:-1, :, None]], axis=2),
            jnp.concatenate([first[:-1, None, :], one], axis=2),
        ],
        axis=1,
    )
    constant = theta.weight - first.shape[-1] / 2 * LOG_2PI
    pairs = [(theta.output, second[1:]), (theta.cross, output_input), (theta.input, input_input)]
    return _pair(pairs, constant)


def markov_energy(
    start: DirichletTerms, transition: DirichletTerms, chain: DiscreteChainTerms
) -> Float[Array, ""]:
    """E log p(k_1) + sum_t E log p(k_{t+1} | k_t), for shared transitions."""
    first = jnp.sum(chain.node[:1] * start.log_probability[None])
    return first + jnp.sum(chain.transition * transition.log_probability)


def _pair(pairs: list[tuple[Array, Array]], constant: Float[Array, "*k"]) -> Float[Array, "time *k"]:
    """Sum over pairs of <theta_k, stats_t>, as one matrix product, plus a constant for each state."""
    states = constant.shape
    flat = lambda x, leading: x.reshape(*leading, math.prod(x.shape[len(leading) :]))
    theta = jnp.concatenate([flat(t, states) for t, _ in pairs], axis=-1)
    stats = jnp.concatenate([flat(s, s.shape[:1]) for _, s in pairs], axis=-1)
    product = jnp.tensordot(stats, theta, axes=(-1, -1), precision=PRECISION)
    return product + jnp.broadcast_to(constant, product.shape)
