r"""Switching linear dynamical system whose states have places: the first state says where a path begins.

$$ k_1 \sim \mathrm{Cat}(\pi_0),\; k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \qquad
   z_1 \sim N(\mu_{k_1}, \Sigma_{k_1}),\; z_t \sim N(A_{k_t} z_{t-1} + b_{k_t}, Q_{k_t}) $$

If windows are cut out of longer recordings, their first steps lie wherever the data do, and one normal for
all of them covers places where no state belongs. New paths that begin there are like no data until
their dynamics have led them home.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, DiscreteChain, DiscreteChainTerms, GaussianChain, Length
from svae.expfam import GaussianTerms, MNIWParameters, NIWParameters, Terms, priced
from svae.meanfield import Blocks
from svae.pgm import priors
from svae.pgm.base import chain_potential
from svae.pgm.factors import normal_log_density, transition_log_density
from svae.pgm.particles import Evidence, Switching, draw_paths, log_probabilities, simulate
from svae.pgm.slds import SLDS, SLDSGlobals
from svae.pgm.starts import emission_scores, state_chain, transition_scores


class PlacedSLDS(SLDS):
    """An SLDS with a place for each state; T steps have T states.

    `places` are the standard parameters of one NIW, as nested tuples, that is every place's prior in place of
    the weak one.
    """

    places: tuple | None = eqx.field(default=None, static=True)

    def path_prior(self) -> tuple[NIWParameters, MNIWParameters]:
        """Places as given, or weak ones."""
        one = priors.niw(jnp.zeros(self.latent_dim))
        if self.places is not None:
            one = NIWParameters(*map(jnp.asarray, self.places))
        return self._each(one), super().path_prior()[1]

    def path_guess(self, key: PRNGKeyArray) -> tuple[NIWParameters, MNIWParameters]:
        """The same place for all states, to begin with."""
        place, dynamics = super().path_guess(key)
        return self._each(place), dynamics

    def _each(self, one: NIWParameters) -> NIWParameters:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.num_states, *x.shape)), one)

    def blocks(self, length: Length) -> tuple:
        """A Gaussian chain and a discrete one, step by step."""
        states = DiscreteChain(length, self.form, self.num_states)
        return GaussianChain(length, self.form), priced(states, self.price)

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E log p(z_1 | k_1) + sum_t E log p(z_t | z_{t-1}, k_t) + E log p(k), the last at its price."""
        z, k = stats
        first = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        moves = transition_log_density(theta.dynamics, z)
        return jnp.sum(k.node * jnp.concatenate([first, moves])) + self.states_cost(theta, k)

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest."""
        z, k = potentials
        first = emission_scores(theta.initial, GaussianTerms(z.first[:1], z.second[:1]))
        scores = jnp.concatenate([first, transition_scores(theta.dynamics, z)])
        alone = lambda k: self.states_cost(theta, k)
        return jax.tree.map(jnp.zeros_like, z), state_chain(self.blocks(length)[1], alone, scores, k)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        time, size, dtype = potential.first.shape[0], self.num_states, potential.first.dtype
        none = DiscreteChainTerms(jnp.zeros((time, size), dtype), jnp.zeros((size, size), dtype))
        return chain_potential(potential), none

    def generate(self, key: PRNGKeyArray, parameters: SLDSGlobals, num_steps: int) -> tuple[Array, Array]:
        """A path, and the states that ruled it."""
        return simulate(key, _switching(parameters), num_steps)

    def complete_given(
        self,
        key: PRNGKeyArray,
        parameters: SLDSGlobals,
        potentials: Blocks,
        count: int,
        length: Length,
    ) -> tuple[Array, Array]:
        """By particles, as for the SLDS."""
        z, k = potentials
        allowed, system = jnp.maximum(k.node, FORBIDDEN), _switching(parameters)
        system = system._replace(start=system.start + allowed[0])
        evidence = Evidence(GaussianTerms(z.first, z.second), allowed[1:])
        paths = draw_paths(key, system, evidence, self.num_particles, count, length)
        return paths.latents, paths.modes

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """Step by step."""
        z, k = potentials
        return z, k._replace(node=jnp.where(allowed, k.node, FORBIDDEN))

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"]:
        """Marginals of the chain."""
        return stats[1].node

    def frame_states(self, states: Int[Array, "*batch time"]) -> Int[Array, "*batch time"]:
        """Every step has its own."""
        return states


def _switching(parameters: SLDSGlobals) -> Switching:
    """The mode is the state, and the rules are the states to come."""
    states = jnp.arange(parameters.start.shape[0], dtype=jnp.int32)
    return Switching(
        states,
        log_probabilities(parameters.start),
        parameters.initial,
        parameters.dynamics,
        log_probabilities(parameters.transition),
        jnp.broadcast_to(states[None], parameters.transition.shape),
    )
