"""The factors that graphical models here are made of: expected log-densities, linear in every argument.

`theta` arguments are expected statistics of parameters and may carry a leading axis of states; the
result then has it last.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.chains import DiscreteChainTerms, GaussianChainTerms
from svae.expfam import LOG_2PI, DirichletTerms, MNIWTerms, NIWTerms
from svae.kernels.products import rows_times


def normal_log_density(
    theta: NIWTerms, first: Float[Array, "time n"], second: Float[Array, "time n n"]
) -> Float[Array, "time *k"]:
    """E log N(z_t; mu_k, Sigma_k)."""
    constant = theta.mean_weight + theta.weight - first.shape[-1] / 2 * LOG_2PI
    product = _pair([(theta.first, first), (theta.second, second)])
    return product + jnp.broadcast_to(constant, product.shape)


def transition_log_density(theta: MNIWTerms, chain: GaussianChainTerms) -> Float[Array, "time_minus_1 *k"]:
    """E log N(z_{t+1}; X_k [z_t; 1], Sigma_k).

    Each field of the chain's statistics enters one matrix product as it is, and in the derivatives comes
    out of one: as what ends a step and as what begins the next at once. Only the results, which are small,
    are shifted in time.
    """
    first, second, cross = chain
    ends, begins = theta.cross[..., -1], theta.input[..., :-1, -1] + theta.input[..., -1, :-1]
    by_node = _pair([(jnp.stack([theta.output, theta.input[..., :-1, :-1]]), second)])
    by_node = by_node + _pair([(jnp.stack([ends, begins]), first)])
    by_link = _pair([(jnp.swapaxes(theta.cross[..., :-1], -1, -2), cross)])
    constant = theta.weight + theta.input[..., -1, -1] - first.shape[-1] / 2 * LOG_2PI
    return by_node[1:, 0] + by_node[:-1, 1] + by_link + jnp.broadcast_to(constant, by_link.shape)


def markov_energy(
    start: DirichletTerms, transition: DirichletTerms, chain: DiscreteChainTerms
) -> Float[Array, ""]:
    """E log p(k_1) + sum_t E log p(k_{t+1} | k_t)."""
    first = jnp.sum(chain.node[:1] * start.log_probability[None])
    pairs = chain.transition if chain.transition.ndim == 2 else jnp.sum(chain.transition, axis=0)
    return first + jnp.sum(pairs * transition.log_probability)


def _pair(pairs: list[tuple[Array, Array]]) -> Float[Array, "time *k"]:
    """Sum over pairs of <theta_k, stats_t>, as one matrix product."""
    inner = pairs[0][1].ndim - 1
    states = pairs[0][0].shape[: pairs[0][0].ndim - inner]
    flat = lambda x, leading: x.reshape(*leading, math.prod(x.shape[len(leading) :]))
    theta = jnp.concatenate([flat(t, states) for t, _ in pairs], axis=-1)
    stats = jnp.concatenate([flat(s, s.shape[:1]) for _, s in pairs], axis=-1)
    found = rows_times(stats, theta.reshape(-1, theta.shape[-1]).T)
    return found.reshape(-1, *states)
