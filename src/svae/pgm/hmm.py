r"""Hidden Markov model with Gaussian states.

$$ k_1 \sim \mathrm{Cat}(\pi_0),\; k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \qquad
   z_t \sim N(\mu_{k_t}, \Sigma_{k_t}) $$
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, DiscreteChain, DiscreteChainTerms, Form, IndependentSteps, Length
from svae.expfam import Dirichlet, Gaussian, GaussianTerms, NormalInverseWishart, Product, Terms, priced
from svae.meanfield import Blocks, Solution
from svae.pgm import priors
from svae.pgm.base import GraphicalModel, sample_markov, sample_normal
from svae.pgm.emissions import absorb_steps, draw_states_first
from svae.pgm.factors import markov_energy, normal_log_density
from svae.pgm.starts import emission_scores, state_chain


class HMMGlobals(NamedTuple):
    """One entry for each unknown: (mu_k, Sigma_k), pi_0 and the rows of pi."""

    emission: Any
    start: Any
    transition: Any


class HMM(GraphicalModel):
    """A hidden Markov model with unknown parameters; `stay`, `move` and `price` as in `SLDS`."""

    num_states: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    stay: float = eqx.field(default=100.0, static=True)
    move: float = eqx.field(default=0.5, static=True)
    price: float = eqx.field(default=1.0, static=True)

    @property
    def family(self) -> Product:
        """An NIW for each state, and Dirichlets."""
        return Product(HMMGlobals(NormalInverseWishart(), Dirichlet(), Dirichlet()))

    def prior(self) -> HMMGlobals:
        """Weak emissions; states that last."""
        standard = HMMGlobals(
            priors.niw(jnp.zeros((self.num_states, self.latent_dim))),
            priors.flat(self.num_states, 0.1),
            priors.sticky_rows(self.num_states, self.stay, self.move),
        )
        return self.family.natural_from_standard(standard)

    def initial(self, key: PRNGKeyArray) -> HMMGlobals:
        """Random means."""
        standard = HMMGlobals(
            priors.niw(jax.random.normal(key, (self.num_states, self.latent_dim)), priors.GUESS),
            priors.flat(self.num_states, 1.01),
            priors.sticky_rows(self.num_states, 1.01, 0.91),
        )
        return self.family.natural_from_standard(standard)

    def blocks(self, length: Length) -> tuple:
        """Independent Gaussians and a chain of states."""
        return IndependentSteps(Gaussian(), length), priced(self.chain(length), self.price)

    def chain(self, length: Length) -> DiscreteChain:
        """That of the states."""
        return DiscreteChain(length, self.form, self.num_states)

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """sum_t E log p(z_t | k_t) + E log p(k)."""
        z, k = stats
        emissions = jnp.sum(k.node * normal_log_density(theta.emission, *z))
        return emissions + self.states_cost(theta, k)

    def states_energy(self, theta: Terms, states: DiscreteChainTerms) -> Float[Array, ""]:
        """A Markov chain."""
        return markov_energy(theta.start, theta.transition, states)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        dtype, size = potential.first.dtype, self.num_states
        node = jnp.zeros((potential.first.shape[0], size), dtype)
        return potential, DiscreteChainTerms(node, jnp.zeros((size, size), dtype))

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest."""
        z, k = potentials
        scores = emission_scores(theta.emission, z)
        _, states = self.blocks(length)
        alone = lambda k: self.states_cost(theta, k)
        return jax.tree.map(jnp.zeros_like, z), state_chain(states, alone, scores, k)

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: HMMGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """Exact: the states with the continuous variables integrated out, then those given the states."""
        z, k = potentials
        levels, means, covariances = absorb_steps(parameters.emission, z)
        chain = DiscreteChainTerms(
            (k.node + levels).at[:1].add(jnp.log(parameters.start)[None]),
            k.transition + jnp.log(parameters.transition),
        )
        return draw_states_first(key, self.chain(length), chain, means, covariances, count)

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """Step by step."""
        z, k = potentials
        return z, k._replace(node=jnp.where(allowed, k.node, FORBIDDEN))

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"]:
        """Marginals of the chain."""
        return stats[1].node

    def most_likely_states(self, solution: Solution, length: Length = None) -> Int[Array, "time"]:
        """Viterbi's path."""
        return self.blocks(length)[1].most_likely_path(solution.naturals[1])

    def generate(self, key: PRNGKeyArray, parameters: HMMGlobals, num_steps: int) -> tuple[Array, Array]:
        """Emissions, and the states behind them."""
        state_key, key = jax.random.split(key)
        states = sample_markov(state_key, parameters.start, parameters.transition, num_steps)
        return sample_normal(key, *(x[states] for x in parameters.emission)), states
