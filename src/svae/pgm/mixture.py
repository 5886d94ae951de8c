r"""Gaussian mixture, for data whose steps are independent.

$$ k_t \sim \mathrm{Cat}(\pi), \qquad z_t \sim N(\mu_{k_t}, \Sigma_{k_t}) $$
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, IndependentSteps, Length
from svae.expfam import (
    Categorical,
    CategoricalTerms,
    Dirichlet,
    Gaussian,
    GaussianTerms,
    NormalInverseWishart,
    Product,
    Terms,
)
from svae.meanfield import Blocks, Solution
from svae.pgm import priors
from svae.pgm.base import GraphicalModel, sample_normal
from svae.pgm.emissions import absorb_steps, draw_states_first
from svae.pgm.factors import normal_log_density
from svae.pgm.starts import emission_scores


class MixtureGlobals(NamedTuple):
    """One entry for each unknown: (mu_k, Sigma_k) and pi."""

    emission: Any
    weights: Any


class GaussianMixture(GraphicalModel):
    """A mixture of normals with unknown parameters."""

    num_states: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    concentration: float = eqx.field(default=0.01, static=True)

    @property
    def family(self) -> Product:
        """An NIW for each state, and a Dirichlet."""
        return Product(MixtureGlobals(NormalInverseWishart(), Dirichlet(minimum=0.001)))

    def prior(self) -> MixtureGlobals:
        """Weak, with few states."""
        emission = priors.niw(jnp.zeros((self.num_states, self.latent_dim)))
        weights = priors.flat(self.num_states, self.concentration)
        return self.family.natural_from_standard(MixtureGlobals(emission, weights))

    def initial(self, key: PRNGKeyArray) -> MixtureGlobals:
        """Random means."""
        mean = jax.random.normal(key, (self.num_states, self.latent_dim))
        emission = priors.niw(mean, priors.GUESS)
        return self.family.natural_from_standard(MixtureGlobals(emission, priors.flat(self.num_states, 1.01)))

    def blocks(self, length: Length) -> tuple:
        """Independent Gaussians and independent states."""
        states = Categorical(self.num_states)
        return IndependentSteps(Gaussian(), length), IndependentSteps(states, length)

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """sum_t E log p(z_t | k_t) + E log p(k_t)."""
        z, k = stats
        emissions = jnp.sum(k.one_hot * normal_log_density(theta.emission, *z))
        return emissions + self.states_energy(theta, k)

    def states_energy(self, theta: Terms, states: CategoricalTerms) -> Float[Array, ""]:
        """Independent draws."""
        return jnp.sum(jnp.sum(states.one_hot, axis=0) * theta.weights.log_probability)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        time = potential.first.shape[0]
        return potential, CategoricalTerms(jnp.zeros((time, self.num_states), potential.first.dtype))

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest."""
        z, k = potentials
        scores = k.one_hot + emission_scores(theta.emission, z) + theta.weights.log_probability[None]
        _, states = self.blocks(length)
        return jax.tree.map(jnp.zeros_like, z), states.expected_stats(CategoricalTerms(scores))

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: MixtureGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """Exact: the states with the continuous variables integrated out, then those given the states."""
        z, k = potentials
        levels, means, covariances = absorb_steps(parameters.emission, z)
        scores = CategoricalTerms(k.one_hot + levels + jnp.log(parameters.weights)[None])
        states = self.blocks(length)[1]
        return draw_states_first(key, states, scores, means, covariances, count)

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """Step by step."""
        z, k = potentials
        return z, k._replace(one_hot=jnp.where(allowed, k.one_hot, FORBIDDEN))

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"]:
        """The component of each step."""
        return stats[1].one_hot

    def most_likely_states(self, solution: Solution, length: Length = None) -> Int[Array, "time"]:
        """Step by step."""
        return jnp.argmax(solution.stats[1].one_hot, axis=-1)

    def generate(self, key: PRNGKeyArray, parameters: MixtureGlobals, num_steps: int) -> tuple[Array, Array]:
        """Independent draws, and their states."""
        state_key, key = jax.random.split(key)
        states = jax.random.categorical(state_key, jnp.log(parameters.weights), shape=(num_steps,))
        return sample_normal(key, *(x[states] for x in parameters.emission)), states
