r"""Jumping switching linear dynamical system: where the state changes, the path may jump.

$$ k_1 \sim \mathrm{Cat}(\pi_0),\; k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \qquad
   z_1 \sim N(\mu_{k_1}, \Sigma_{k_1}), $$

$$ z_t \sim \begin{cases} N(A_{k_t} z_{t-1} + b_{k_t}, Q_{k_t}) & k_t = k_{t-1} \\
   N(A^J_{k_t} z_{t-1} + b^J_{k_t}, Q^J_{k_t}) & k_t \ne k_{t-1} \end{cases} $$

Which dynamics rule a step depends on two states, so the chain of states has transition potentials of its own
at each step. The posterior is $q(z)\, q(k)$.
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
    LinearGaussian,
    MatrixNormalInverseWishart,
    NormalInverseWishart,
    ParameterPosterior,
    Product,
    Terms,
    add,
    priced,
)
from svae.meanfield import Blocks, Solution
from svae.pgm import priors
from svae.pgm.base import PARAMETER_DRAWS, GraphicalModel, chain_potential
from svae.pgm.factors import markov_energy, normal_log_density, transition_log_density
from svae.pgm.particles import Evidence, Learned, Switching, draw_paths, learned, log_probabilities, simulate
from svae.pgm.starts import emission_scores, transition_scores


class JumpingSLDSGlobals(NamedTuple):
    """Of each state (mu_k, Sigma_k), ([A_k | b_k], Q_k) and the same of jumps to it; pi_0, rows of pi."""

    initial: Any
    dynamics: Any
    jump: Any
    start: Any
    transition: Any


class JumpingSLDS(GraphicalModel):
    """A jumping SLDS with unknown parameters; `stay`, `move`, `innovation` and `price` as in `SLDS`."""

    num_states: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    stay: float = eqx.field(default=100.0, static=True)
    move: float = eqx.field(default=0.5, static=True)
    innovation: float | None = eqx.field(default=None, static=True)
    num_particles: int = eqx.field(default=300, static=True)  # of completions
    price: float = eqx.field(default=1.0, static=True)

    @property
    def family(self) -> Product:
        """For each state an NIW and two MNIWs, and Dirichlets."""
        dynamics = MatrixNormalInverseWishart()
        return Product(
            JumpingSLDSGlobals(NormalInverseWishart(), dynamics, dynamics, Dirichlet(), Dirichlet())
        )

    def prior(self) -> JumpingSLDSGlobals:
        """The same weak dynamics for staying and for jumping; states that last."""
        size = self.latent_dim
        mean = jnp.broadcast_to(priors.dynamics_mean(size), (self.num_states, size, size + 1))
        standard = JumpingSLDSGlobals(
            priors.niw(jnp.zeros((self.num_states, size))),
            priors.mniw(mean, innovation=self.innovation),
            priors.mniw(mean, innovation=self.innovation),
            priors.flat(self.num_states, 0.1),
            priors.sticky_rows(self.num_states, self.stay, self.move),
        )
        return self.family.natural_from_standard(standard)

    def initial(self, key: PRNGKeyArray) -> JumpingSLDSGlobals:
        """Different random couplings for each state and for the jumps to it."""
        states = (self.num_states,)
        guess = lambda key: priors.random_dynamics(key, states, self.latent_dim, self.innovation)
        stay_key, jump_key = jax.random.split(key)
        standard = JumpingSLDSGlobals(
            priors.niw(jnp.zeros((*states, self.latent_dim)), priors.GUESS),
            guess(stay_key),
            guess(jump_key),
            priors.flat(self.num_states, 1.01),
            priors.sticky_rows(self.num_states, 1.01, 0.91),
        )
        return self.family.natural_from_standard(standard)

    def blocks(self, length: Length) -> tuple:
        """A Gaussian chain and a discrete one, whose pairs of states are kept step by step."""
        states = DiscreteChain(length, self.form, self.num_states, shared=False)
        return GaussianChain(length, self.form), priced(states, self.price)

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E log p(z_1 | k_1) + sum_t E log p(z_t | z_{t-1}, k_{t-1}, k_t) + E log p(k)."""
        z, k = stats
        first = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        moves = (transition_log_density(x, z) for x in (theta.dynamics, theta.jump))
        return _scored(k, first, *moves) + self.states_cost(theta, k)

    def states_energy(self, theta: Terms, states: DiscreteChainTerms) -> Float[Array, ""]:
        """A Markov chain."""
        return markov_energy(theta.start, theta.transition, states)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        time, size, dtype = potential.first.shape[0], self.num_states, potential.first.dtype
        pairs = jnp.zeros((max(time - 1, 0), size, size), dtype)
        return chain_potential(potential), DiscreteChainTerms(jnp.zeros((time, size), dtype), pairs)

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest: with their scores in place of the path's."""
        z, k = potentials
        first = emission_scores(theta.initial, GaussianTerms(z.first[:1], z.second[:1]))
        moves = [transition_scores(x, z) for x in (theta.dynamics, theta.jump)]
        suggested = lambda k: _scored(k, first, *moves) + self.states_cost(theta, k)
        natural = add(k, jax.grad(suggested)(k))
        return jax.tree.map(jnp.zeros_like, z), self.blocks(length)[1].expected_stats(natural)

    def draw_parameters(
        self, key: PRNGKeyArray, posterior: ParameterPosterior, count: int = PARAMETER_DRAWS
    ) -> Any:
        """Draws of dynamics and of jumps know where they were learned."""
        drawn, natural = super().draw_parameters(key, posterior, count), posterior.natural
        return drawn._replace(
            dynamics=learned(drawn.dynamics, natural.dynamics), jump=learned(drawn.jump, natural.jump)
        )

    def generate(
        self, key: PRNGKeyArray, parameters: JumpingSLDSGlobals, num_steps: int
    ) -> tuple[Array, Array]:
        """A path, and the states that ruled it."""
        return simulate(key, self._switching(parameters), num_steps)

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: JumpingSLDSGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """By particles, which remember their state; each may go on by staying in or jumping to a state."""
        z, k = potentials
        allowed, system = jnp.maximum(k.node, FORBIDDEN), self._switching(parameters)
        system = system._replace(start=system.start + allowed[0])
        evidence = Evidence(GaussianTerms(z.first, z.second), jnp.tile(allowed[1:], 2))
        paths = draw_paths(key, system, evidence, self.num_particles, count, length)
        return paths.latents, paths.modes

    def _switching(self, parameters: JumpingSLDSGlobals) -> Switching:
        """The mode is the state; the rules are to stay in each state, then to jump to it."""
        states = jnp.arange(self.num_states, dtype=jnp.int32)
        rows, same = log_probabilities(parameters.transition), jnp.eye(self.num_states, dtype=bool)
        rules = jnp.concatenate([jnp.where(same, rows, FORBIDDEN), jnp.where(same, FORBIDDEN, rows)], axis=1)
        return Switching(
            states,
            log_probabilities(parameters.start),
            parameters.initial,
            _rules(parameters),
            rules,
            jnp.broadcast_to(jnp.tile(states, 2)[None], rules.shape),
        )

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


def _scored(
    k: DiscreteChainTerms,
    first: Float[Array, "1 k"],
    stay: Float[Array, "time_minus_1 k"],
    jump: Float[Array, "time_minus_1 k"],
) -> Float[Array, ""]:
    """Expected score of the states: `first` of the first step, then `stay` or `jump`."""
    same = jnp.eye(k.node.shape[1], dtype=bool)[None]
    stayed = jnp.sum(jnp.where(same, k.transition, 0), axis=-2)
    jumped = jnp.sum(jnp.where(same, 0, k.transition), axis=-2)
    return jnp.sum(k.node[:1] * first) + jnp.sum(stayed * stay) + jnp.sum(jumped * jump)


def _rules(parameters: JumpingSLDSGlobals) -> LinearGaussian | Learned:
    """Dynamics of staying in each state, then those of jumping to it."""
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), parameters.dynamics, parameters.jump)
