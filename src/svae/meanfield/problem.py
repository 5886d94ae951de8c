r"""Structured mean field: what is optimised.

The latent variables are split into M blocks, each an exponential family with exact inference. A model
is one scalar function,

$$ E(\theta, \mu_1, \ldots, \mu_M) = E_q[\log p(z \mid \theta)], $$

linear in the expected statistics $\theta$ of the parameters and in the statistics $\mu_m$ of each block.
The encoder (or any other likelihood approximation) adds potentials $\lambda_m$. Everything else follows:

| | |
|---|---|
| mean-field message | $\omega_m = \partial E / \partial \mu_m + \lambda_m$ |
| belief propagation | $\mu_m = \partial \log Z_m / \partial \omega_m$ |
| local KL | $\sum_m (\langle\omega_m, \mu_m\rangle - \log Z_m(\omega_m)) - E(\theta, \mu)$ |
| surrogate objective | $\sum_m \langle\lambda_m, \mu_m\rangle - $ local KL |
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.expfam import ExponentialFamily, Terms, add, inner, propagate

Blocks = tuple[Terms, ...]  # one record for each block


class Problem(eqx.Module):
    """A model's energy and the blocks of its posterior, for one sequence."""

    energy: Callable[[Any, Blocks], Float[Array, ""]]  # (theta_stats, stats of each block) -> scalar
    blocks: tuple[ExponentialFamily, ...]


class BlockPosterior(NamedTuple):
    """The factors of q(z): `stats` and `log_partitions` belong to `naturals`, optimal or not."""

    naturals: Blocks
    stats: Blocks
    log_partitions: tuple[Float[Array, ""], ...]


def message(problem: Problem, theta: Terms, stats: Blocks, block: int) -> Terms:
    """d energy / d stats of one block: what the other blocks tell it."""

    def energy(own: Terms) -> Float[Array, ""]:
        return problem.energy(theta, (*stats[:block], own, *stats[block + 1 :]))

    return jax.grad(energy)(stats[block])


def unread(terms: Terms) -> Terms:
    """In place of statistics that an energy which is linear in them does not look at."""
    return jax.tree.map(jnp.zeros_like, terms)


def sweep(problem: Problem, theta: Terms, potentials: Blocks, stats: Blocks) -> BlockPosterior:
    """Update each block once, in order, given the latest statistics of the others."""
    return sweep_by(propagate, problem, theta, potentials, stats)[0]


def sweep_by(
    infer: Callable, problem: Problem, theta: Terms, potentials: Blocks, stats: Blocks
) -> tuple[BlockPosterior, list[Any]]:
    """The same, and for each block what else `infer` tells of it."""
    naturals, log_partitions, more = [], [], []
    for m, family in enumerate(problem.blocks):
        natural = add(message(problem, theta, stats, m), potentials[m])
        log_partition, own, *rest = infer(natural, family)
        stats = (*stats[:m], own, *stats[m + 1 :])
        naturals.append(natural)
        log_partitions.append(log_partition)
        more.append(rest)
    return BlockPosterior(tuple(naturals), stats, tuple(log_partitions)), more


def local_kl(problem: Problem, theta: Terms, posterior: BlockPosterior) -> Float[Array, ""]:
    """E_q(theta) KL(q(z) || p(z | theta)), exact whether or not inference has converged.

    The negative entropy <natural, stats> - log Z is a function of the statistics whose gradient is the
    natural parameter, which is what holding `naturals` constant says.
    """
    naturals, log_partitions = jax.lax.stop_gradient((posterior.naturals, posterior.log_partitions))
    negative_entropy = inner(naturals, posterior.stats) - sum(log_partitions)
    return negative_entropy - problem.energy(theta, posterior.stats)


def surrogate(
    problem: Problem, theta: Terms, potentials: Blocks, posterior: BlockPosterior
) -> Float[Array, ""]:
    """What inference maximises (less the KL of the parameters, which it does not touch)."""
    return inner(potentials, posterior.stats) - local_kl(problem, theta, posterior)
