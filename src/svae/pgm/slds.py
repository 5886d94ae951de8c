r"""Switching linear dynamical system.

$$ k_2 \sim \mathrm{Cat}(\pi_0),\; k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \qquad
   z_1 \sim N(\mu_0, \Sigma_0),\; z_t \sim N(A_{k_t} z_{t-1} + b_{k_t}, Q_{k_t}) $$

State $k_t$ rules the step from $z_{t-1}$ to $z_t$, so T steps have T-1 states. The posterior is
$q(z)\, q(k)$, a Gaussian chain and a discrete one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, DiscreteChain, DiscreteChainTerms, GaussianChain, Length
from svae.expfam import (
    Dirichlet,
    GaussianTerms,
    MatrixNormalInverseWishart,
    NormalInverseWishart,
    Product,
    Terms,
    priced,
)
from svae.meanfield import Blocks
from svae.pgm import priors
from svae.pgm.base import chain_potential, shorten
from svae.pgm.factors import markov_energy
from svae.pgm.particles import Evidence, draw_paths, markov_switching, simulate
from svae.pgm.switching import SwitchingLinear, with_first


class SLDSGlobals(NamedTuple):
    """One entry for each unknown: (mu_0, Sigma_0), ([A_k | b_k], Q_k), pi_0 and the rows of pi."""

    initial: Any
    dynamics: Any
    start: Any
    transition: Any


class SLDS(SwitchingLinear):
    """A switching linear dynamical system with unknown parameters."""

    @property
    def family(self) -> Product:
        """NIW, an MNIW for each state, and Dirichlets."""
        families = NormalInverseWishart(), MatrixNormalInverseWishart(), Dirichlet(), Dirichlet()
        return Product(SLDSGlobals(*families))

    def prior(self) -> SLDSGlobals:
        """Dynamics as in `SwitchingLinear`; states that last."""
        standard = SLDSGlobals(
            *self.path_prior(),
            priors.flat(self.num_states, 0.1),
            priors.sticky_rows(self.num_states, self.stay, self.move),
        )
        return self.family.natural_from_standard(standard)

    def initial(self, key: PRNGKeyArray) -> SLDSGlobals:
        """Different random couplings for each state."""
        standard = SLDSGlobals(
            *self.path_guess(key),
            priors.flat(self.num_states, 1.01),
            priors.sticky_rows(self.num_states, 1.01, 0.91),
        )
        return self.family.natural_from_standard(standard)

    def blocks(self, length: Length) -> tuple:
        """A Gaussian chain and the discrete chain of its transitions."""
        return (
            GaussianChain(length, self.form),
            priced(DiscreteChain(shorten(length), self.form, self.num_states), self.price),
        )

    def states_energy(self, theta: Terms, states: DiscreteChainTerms) -> Float[Array, ""]:
        """A Markov chain."""
        return markov_energy(theta.start, theta.transition, states)

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """None on the states."""
        time, size, dtype = potential.first.shape[0], self.num_states, potential.first.dtype
        none = DiscreteChainTerms(jnp.zeros((max(time - 1, 0), size), dtype), jnp.zeros((size, size), dtype))
        return chain_potential(potential), none

    def generate(self, key: PRNGKeyArray, parameters: SLDSGlobals, num_steps: int) -> tuple[Array, Array]:
        """A path, and the states that ruled it."""
        path, states = simulate(key, markov_switching(*parameters), num_steps)
        return path, states[1:]

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

    def frame_states(self, states: Int[Array, "*batch chain"]) -> Int[Array, "*batch time"]:
        """The first step has the state of the first transition."""
        return with_first(states)
