r"""Switching linear dynamical system.

$$ k_2 \sim \mathrm{Cat}(\pi_0),\; k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \qquad
   z_1 \sim N(\mu_0, \Sigma_0),\; z_t \sim N(A_{k_t} z_{t-1} + b_{k_t}, Q_{k_t}) $$

State $k_t$ rules the step from $z_{t-1}$ to $z_t$, so T steps have T-1 states. The posterior is
$q(z)\, q(k)$, a Gaussian chain and a discrete one.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, DiscreteChain, DiscreteChainTerms, Form, GaussianChain, Length
from svae.expfam import (
    Dirichlet,
    GaussianTerms,
    MatrixNormalInverseWishart,
    NormalInverseWishart,
    Product,
    Terms,
)
from svae.meanfield import Blocks, Solution
from svae.pgm import priors
from svae.pgm.base import (
    GraphicalModel,
    chain_potential,
    sample_dynamics,
    sample_markov,
    sample_normal,
    shorten,
)
from svae.pgm.factors import markov_energy, normal_log_density, transition_log_density
from svae.pgm.particles import Evidence, draw_paths, markov_switching
from svae.pgm.starts import state_chain, transition_scores


class SLDSGlobals(NamedTuple):
    """One entry for each unknown: (mu_0, Sigma_0), ([A_k | b_k], Q_k), pi_0 and the rows of pi."""

    initial: Any
    dynamics: Any
    start: Any
    transition: Any


class SLDS(GraphicalModel):
    """A switching linear dynamical system with unknown parameters.

    `stay` and `move` are the prior's pseudo-counts for keeping and for changing the state, `innovation`
    is its idea of the variance of a step (the latent dimension, if None).
    """

    num_states: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    stay: float = eqx.field(default=100.0, static=True)
    move: float = eqx.field(default=0.5, static=True)
    innovation: float | None = eqx.field(default=None, static=True)
    num_particles: int = eqx.field(default=300, static=True)  # of completions

    @property
    def family(self) -> Product:
        """NIW, an MNIW for each state, and Dirichlets."""
        families = NormalInverseWishart(), MatrixNormalInverseWishart(), Dirichlet(), Dirichlet()
        return Product(SLDSGlobals(*families))

    def prior(self) -> SLDSGlobals:
        """Weak dynamics centred on slow decay; states that last."""
        mean = jnp.broadcast_to(
            priors.dynamics_mean(self.latent_dim), (self.num_states, self.latent_dim, self.latent_dim + 1)
        )
        standard = SLDSGlobals(
            priors.niw(jnp.zeros(self.latent_dim)),
            priors.mniw(mean, innovation=self.innovation),
            priors.flat(self.num_states, 0.1),
            priors.sticky_rows(self.num_states, self.stay, self.move),
        )
        return self.family.natural_from_standard(standard)

    def initial(self, key: PRNGKeyArray) -> SLDSGlobals:
        """Different random couplings for each state."""
        standard = SLDSGlobals(
            priors.niw(jnp.zeros(self.latent_dim), priors.GUESS),
            priors.random_dynamics(key, (self.num_states,), self.latent_dim, self.innovation),
            priors.flat(self.num_states, 1.01),
            priors.sticky_rows(self.num_states, 1.01, 0.91),
        )
        return self.family.natural_from_standard(standard)

    def blocks(self, length: Length) -> tuple:
        """A Gaussian chain and the discrete chain of its transitions."""
        return (
            GaussianChain(length, self.form),
            DiscreteChain(shorten(length), self.form, self.num_states),
        )

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E log p(z_1) + sum_t E log p(z_t | z_{t-1}, k_t) + E log p(k)."""
        z, k = stats
        initial = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        transitions = transition_log_density(theta.dynamics, z)
        return jnp.sum(initial) + jnp.sum(k.node * transitions) + self.states_energy(theta, k)

    def states_energy(self, theta: Terms, states: DiscreteChainTerms) -> Float[Array, ""]:
        """A Markov chain."""
        return markov_energy(theta.start, theta.transition, states)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        return chain_potential(potential), self._no_states(potential.first.shape[0], potential.first.dtype)

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest."""
        z, k = potentials
        scores = transition_scores(theta.dynamics, z)
        _, states = self.blocks(length)
        return jax.tree.map(jnp.zeros_like, z), state_chain(states, theta.start, theta.transition, scores, k)

    def generate(self, key: PRNGKeyArray, parameters: SLDSGlobals, num_steps: int) -> tuple[Array, Array]:
        """A path, and the states that ruled it."""
        first_key, state_key, path_key = jax.random.split(key, 3)
        first = sample_normal(first_key, *parameters.initial)
        states = sample_markov(state_key, parameters.start, parameters.transition, num_steps - 1)
        ruled = [x[states] for x in parameters.dynamics]
        return sample_dynamics(path_key, first, *ruled), states

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: SLDSGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """By particles: across gaps, mean field would keep one of many possible paths of states."""
        z, k = potentials
        evidence = Evidence(GaussianTerms(z.first, z.second), jnp.maximum(k.node, FORBIDDEN))
        paths = draw_paths(key, markov_switching(*parameters), evidence, self.num_particles, count, length)
        return paths.latents, self.frame_states(paths.modes[:, 1:])

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """The first step has the state of the first transition, which is that of the second step."""
        z, k = potentials
        return z, k._replace(node=jnp.where(allowed[1:], k.node, FORBIDDEN))

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"]:
        """The first step has the state of the first transition."""
        probability = stats[1].node
        return jnp.concatenate([probability[:1], probability])

    def most_likely_states(self, solution: Solution, length: Length = None) -> Int[Array, "time"]:
        """Viterbi's path."""
        states = self.blocks(length)[1]
        return self.frame_states(states.most_likely_path(solution.naturals[1]))

    def frame_states(self, states: Int[Array, "*batch chain"]) -> Int[Array, "*batch time"]:
        """The first step has the state of the first transition."""
        return jnp.concatenate([states[..., :1], states], axis=-1)

    def _no_states(self, num_steps: int, dtype) -> DiscreteChainTerms:
        size = self.num_states
        return DiscreteChainTerms(
            jnp.zeros((max(num_steps - 1, 0), size), dtype), jnp.zeros((size, size), dtype)
        )
