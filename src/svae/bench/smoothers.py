"""Exact inference in one chain, ours and dynamax's, on the same problems and in the same process.

`python -m svae.bench.smoothers '{"batch": 8, ...}'` prints a JSON record. `svae.bench.engine` runs it
that way because dynamax's linear algebra can hang on machines with few cores: a process of its own can
be given a larger thread pool, and be ended.
"""

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae import linalg
from svae.bench.timing import Program, Say, compile_program, time_in_turns
from svae.chains import DiscreteChain, DiscreteChainTerms, Form, GaussianChain, natural_from_potentials


class LinearSystem(NamedTuple):
    """z_1 ~ N(0, I), z_{t+1} ~ N(A z_t, Q), y_t ~ N(z_t, diag(r_t)): an encoder's output, say."""

    weights: Float[Array, "n n"]
    covariance: Float[Array, "n n"]
    emissions: Float[Array, "batch time n"]
    variances: Float[Array, "batch time n"]


class MarkovChain(NamedTuple):
    """A hidden Markov chain, and the log-likelihoods of its observations."""

    start: Float[Array, "k"]
    transition: Float[Array, "k k"]
    log_likelihoods: Float[Array, "batch time k"]


def linear_problem(key: PRNGKeyArray, batch: int, num_steps: int, latent_dim: int) -> LinearSystem:
    """Slow decay with random couplings; emissions of varying precision."""
    weight_key, emission_key, variance_key = jax.random.split(key, 3)
    identity, shape = jnp.eye(latent_dim), (batch, num_steps, latent_dim)
    weights = 0.9 * identity + 0.1 / latent_dim * jax.random.normal(weight_key, identity.shape)
    variances = jax.random.uniform(variance_key, shape, minval=0.2, maxval=1.0)
    return LinearSystem(weights, 0.1 * identity, jax.random.normal(emission_key, shape), variances)


def markov_problem(key: PRNGKeyArray, batch: int, num_steps: int, num_states: int) -> MarkovChain:
    """Random transitions, and likelihoods that leave doubt."""
    transition_key, score_key = jax.random.split(key)
    even = jnp.full(num_states, 1 / num_states)
    transition = jax.random.dirichlet(transition_key, jnp.ones(num_states), (num_states,))
    return MarkovChain(even, transition, jax.random.normal(score_key, (batch, num_steps, num_states)))


def our_smoother(system: LinearSystem, parallel: bool) -> tuple[Array, Array]:
    """Means and second moments."""
    precision = linalg.inverse(system.covariance)
    forward = linalg.matmul(linalg.transpose(system.weights), precision)
    initial = jnp.eye(len(precision)), jnp.zeros(len(precision))

    def smooth(emissions: Float[Array, "time n"], variances: Float[Array, "time n"]) -> tuple[Array, Array]:
        links = len(emissions) - 1
        matrices = linalg.matmul(forward, system.weights), forward, precision
        before, across, after = (jnp.broadcast_to(matrix, (links, *matrix.shape)) for matrix in matrices)
        none = jnp.zeros((links, len(precision)))
        natural = natural_from_potentials(
            *initial, before, across, after, none, none, diagonal(1 / variances), emissions / variances
        )
        stats = GaussianChain(form=Form.PARALLEL if parallel else Form.SEQUENTIAL).expected_stats(natural)
        return stats.first, stats.second

    return jax.vmap(smooth)(system.emissions, system.variances)


def dynamax_smoother(system: LinearSystem, parallel: bool) -> tuple[Array, Array]:
    """Means and covariances."""
    from dynamax.linear_gaussian_ssm import lgssm_smoother, parallel_lgssm_smoother
    from dynamax.linear_gaussian_ssm.inference import make_lgssm_params

    identity = jnp.eye(len(system.weights))
    known = jnp.zeros(len(identity)), identity, system.weights, system.covariance, identity
    smoother = parallel_lgssm_smoother if parallel else lgssm_smoother

    def smooth(emissions: Float[Array, "time n"], variances: Float[Array, "time n"]) -> tuple[Array, Array]:
        posterior = smoother(make_lgssm_params(*known, diagonal(variances)), emissions)
        return posterior.smoothed_means, posterior.smoothed_covariances

    return jax.vmap(smooth)(system.emissions, system.variances)


def diagonal(vectors: Float[Array, "time n"]) -> Float[Array, "time n n"]:
    """Diagonal matrices."""
    return vectors[:, :, None] * jnp.eye(vectors.shape[-1])[None]


def our_marginals(chain: MarkovChain, parallel: bool) -> tuple[Array, Array]:
    """Marginals, and expected counts of transitions."""

    def smooth(scores: Float[Array, "time k"]) -> tuple[Array, Array]:
        node = scores.at[0].add(jnp.log(chain.start))
        stats = DiscreteChain(form=Form.PARALLEL if parallel else Form.SEQUENTIAL).expected_stats(
            DiscreteChainTerms(node, jnp.log(chain.transition))
        )
        return stats.node, stats.transition

    return jax.vmap(smooth)(chain.log_likelihoods)


def dynamax_marginals(chain: MarkovChain, parallel: bool) -> tuple[Array, Array]:
    """Marginals, and expected counts of transitions."""
    from dynamax.hidden_markov_model import hmm_smoother, parallel_hmm_smoother

    smoother = parallel_hmm_smoother if parallel else hmm_smoother
    posterior = jax.vmap(partial(smoother, chain.start, chain.transition))(chain.log_likelihoods)
    return posterior.smoothed_probs, posterior.trans_probs


class Job(NamedTuple):
    """A problem, and both libraries' functions for it."""

    name: str
    problem: LinearSystem | MarkovChain
    functions: dict[str, Callable]


def jobs(batch: int, num_steps: int, num_states: int, latent_dim: int) -> list[Job]:
    """What is compared."""
    linear_key, markov_key = jax.random.split(jax.random.key(0))
    linear = linear_problem(linear_key, batch, num_steps, latent_dim)
    markov = markov_problem(markov_key, batch, num_steps, num_states)
    return [
        Job("Gaussian chain", linear, {"svae": our_smoother, "dynamax": dynamax_smoother}),
        Job("discrete chain", markov, {"svae": our_marginals, "dynamax": dynamax_marginals}),
    ]


def compare(repeats: int, budget: float, say: Say, **sizes: int) -> dict[str, Any]:
    """Timings of both libraries, and by how much their answers (means, marginals) differ."""
    compiled, differences = [], {}
    for job, parallel in itertools.product(jobs(**sizes), (False, True)):
        group = f"{job.name}, {'parallel' if parallel else 'sequential'}"
        pair = [
            compile_program(Program(group, name, partial(function, parallel=parallel), (job.problem,)), say)
            for name, function in job.functions.items()
        ]
        ours, theirs = (one.run()[0] for one in pair)
        differences[group] = float(jnp.max(jnp.abs(ours - theirs)))
        compiled += pair
    timings = time_in_turns(compiled, repeats, budget, say)
    return {"timings": [timing._asdict() for timing in timings], "differences": differences}


if __name__ == "__main__":
    result = compare(**json.loads(sys.argv[1]), say=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(result))
