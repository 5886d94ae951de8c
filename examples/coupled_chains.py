r"""A graphical model of your own in one file: two hidden causes driving one movement.

Two discrete chains, say *what* an animal does (j) and *how fast* it does it (k), evolve independently,
and together they rule the dynamics of one continuous state:

$$ j_t \sim \mathrm{Cat}(\rho_{j_{t-1}}), \quad k_t \sim \mathrm{Cat}(\pi_{k_{t-1}}), \quad
   z_t \sim N(A_{j_t k_t} z_{t-1} + b_{j_t k_t},\; Q_{j_t k_t}). $$

The posterior has three blocks, q(z) q(j) q(k). All that has to be written is the prior, the blocks and
`energy`; messages, inference, KL, natural and implicit gradients follow.

    python examples/coupled_chains.py
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from svae.chains import DiscreteChain, DiscreteChainTerms, GaussianChain
from svae.expfam import (
    Dirichlet,
    GaussianParameters,
    LinearGaussian,
    MatrixNormalInverseWishart,
    NormalInverseWishart,
    Product,
    fixed_parameters,
)
from svae.meanfield import CoordinateAscent
from svae.pgm import GraphicalModel, priors
from svae.pgm.base import chain_potential, sample_dynamics, sample_markov, sample_normal, shorten
from svae.pgm.factors import markov_energy, normal_log_density, transition_log_density
from svae.pgm.starts import state_chain, transition_scores


class Globals(NamedTuple):
    """One entry for each unknown."""

    initial: Any
    dynamics: Any  # for each pair of states
    what_start: Any
    what: Any
    pace_start: Any
    pace: Any


class CoupledChains(GraphicalModel):
    """Two discrete chains that rule one Gaussian chain together."""

    num_what: int = eqx.field(static=True)
    num_pace: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)

    @property
    def family(self):
        """NIW, an MNIW for each pair of states, four Dirichlets."""
        continuous = NormalInverseWishart(), MatrixNormalInverseWishart()
        return Product(Globals(*continuous, Dirichlet(), Dirichlet(), Dirichlet(), Dirichlet()))

    def _standard(self, dynamics, stay):
        return Globals(
            priors.niw(jnp.zeros(self.latent_dim)),
            dynamics,
            priors.flat(self.num_what, 1.0),
            priors.sticky_rows(self.num_what, stay, 0.5),
            priors.flat(self.num_pace, 1.0),
            priors.sticky_rows(self.num_pace, stay, 0.5),
        )

    def prior(self):
        """Slow decay; states that last."""
        shape = (self.num_what, self.num_pace, self.latent_dim, self.latent_dim + 1)
        dynamics = priors.mniw(jnp.broadcast_to(priors.dynamics_mean(self.latent_dim), shape))
        return self.family.natural_from_standard(self._standard(dynamics, stay=20.0))

    def initial(self, key):
        """Random couplings."""
        dynamics = priors.random_dynamics(key, (self.num_what, self.num_pace), self.latent_dim)
        return self.family.natural_from_standard(self._standard(dynamics, stay=2.0))

    def blocks(self, length):
        """One continuous and two discrete chains."""
        links = shorten(length)
        what = DiscreteChain(links, num_states=self.num_what)
        return GaussianChain(length), what, DiscreteChain(links, num_states=self.num_pace)

    def energy(self, theta, stats, length):
        """E log p(z | j, k) + E log p(j) + E log p(k): linear in each block."""
        z, what, pace = stats
        initial = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        transitions = transition_log_density(theta.dynamics, z)
        ruled = jnp.einsum("tjk,tj,tk->", transitions, what.node, pace.node)
        chains = markov_energy(theta.what_start, theta.what, what)
        return jnp.sum(initial) + ruled + chains + markov_energy(theta.pace_start, theta.pace, pace)

    def wrap(self, potential):
        """Potentials on z alone."""
        links = potential.first.shape[0] - 1
        zeros = lambda *shape: jnp.zeros(shape, potential.first.dtype)
        none = lambda k: DiscreteChainTerms(zeros(links, k), zeros(k, k))
        return chain_potential(potential), none(self.num_what), none(self.num_pace)

    def start(self, theta, potentials, length):
        """The states that the potentials alone suggest."""
        z, what, pace = potentials
        _, what_chain, pace_chain = self.blocks(length)
        scores = transition_scores(theta.dynamics, z)
        of_what = lambda k: markov_energy(theta.what_start, theta.what, k)
        of_pace = lambda k: markov_energy(theta.pace_start, theta.pace, k)
        what = state_chain(what_chain, of_what, logsumexp(scores, axis=2), what)
        pace = state_chain(pace_chain, of_pace, logsumexp(scores, axis=1), pace)
        return z, what, pace

    def generate(self, key, parameters, num_steps):
        """A path and both chains of states."""
        first_key, what_key, pace_key, path_key = jax.random.split(key, 4)
        first = sample_normal(first_key, *parameters.initial)
        what = sample_markov(what_key, parameters.what_start, parameters.what, num_steps - 1)
        pace = sample_markov(pace_key, parameters.pace_start, parameters.pace, num_steps - 1)
        ruled = [x[what, pace] for x in parameters.dynamics]
        return sample_dynamics(path_key, first, *ruled), what, pace


def circling() -> Globals:
    """A movement in circles: left or right, slow or fast."""
    turn = lambda angle: jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]])
    angles = jnp.array([[0.1, 0.5], [-0.1, -0.5]])  # (direction, pace)
    weights = jnp.concatenate([jax.vmap(jax.vmap(turn))(angles), jnp.zeros((2, 2, 2, 1))], axis=-1)
    noise = jnp.broadcast_to(1e-3 * jnp.eye(2), (2, 2, 2, 2))
    uniform, lasting = jnp.ones(2) / 2, jnp.array([[0.97, 0.03], [0.03, 0.97]])
    initial = GaussianParameters(jnp.array([2.0, 0.0]), 0.1 * jnp.eye(2))
    return Globals(initial, LinearGaussian(weights, noise), uniform, lasting, uniform, lasting)


def main() -> dict[str, float]:
    """Recover both hidden causes of a simulated movement from noisy positions."""
    model, parameters = CoupledChains(2, 2, 2), circling()
    z, what, pace = model.generate(jax.random.key(1), parameters, num_steps=200)
    noisy = z + 0.05 * jax.random.normal(jax.random.key(2), z.shape)
    precision = jnp.full_like(noisy, 1 / 0.05**2)
    potentials = model.potentials(precision * noisy, precision)
    posterior = fixed_parameters(model.family, parameters)

    solution = model.infer(posterior, potentials, solver=CoordinateAscent(max_sweeps=100)).solution
    _, found_what, found_pace = solution.stats
    agreement = {
        "direction": float(jnp.mean(jnp.argmax(found_what.node, axis=1) == what)),
        "pace": float(jnp.mean(jnp.argmax(found_pace.node, axis=1) == pace)),
    }
    for name, share in agreement.items():
        print(f"{name}: {share:.0%} of the steps recovered")
    print(f"{int(solution.sweeps)} sweeps, converged: {bool(solution.converged)}")
    return agreement


if __name__ == "__main__":
    main()
