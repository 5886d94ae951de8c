r"""Linear dynamical system.

$$ z_1 \sim N(\mu_0, \Sigma_0), \qquad z_{t+1} \sim N(A z_t + b, Q) $$

with a normal inverse Wishart prior on $(\mu_0, \Sigma_0)$ and a matrix normal inverse Wishart on
$([A \mid b], Q)$. Inference is exact: there is one block.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae.chains import Form, GaussianChain, Length, valid_steps
from svae.expfam import GaussianTerms, MatrixNormalInverseWishart, NormalInverseWishart, Product, Terms
from svae.meanfield import Blocks
from svae.pgm import priors
from svae.pgm.base import GraphicalModel, chain_potential, sample_dynamics, sample_normal
from svae.pgm.factors import normal_log_density, transition_log_density


class LDSGlobals(NamedTuple):
    """One entry for each unknown: (mu_0, Sigma_0) and ([A | b], Q)."""

    initial: Any
    dynamics: Any


class LDS(GraphicalModel):
    """A linear dynamical system with unknown parameters; `innovation` as in `SLDS`."""

    latent_dim: int = eqx.field(static=True)
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    innovation: float | None = eqx.field(default=None, static=True)

    @property
    def family(self) -> Product:
        """NIW and MNIW."""
        return Product(LDSGlobals(NormalInverseWishart(), MatrixNormalInverseWishart()))

    def prior(self) -> LDSGlobals:
        """Weak, centred on slow decay."""
        initial = priors.niw(jnp.zeros(self.latent_dim))
        dynamics = priors.mniw(priors.dynamics_mean(self.latent_dim), innovation=self.innovation)
        return self.family.natural_from_standard(LDSGlobals(initial, dynamics))

    def initial(self, key: PRNGKeyArray) -> LDSGlobals:
        """Slow decay with small random couplings."""
        initial = priors.niw(jnp.zeros(self.latent_dim), priors.GUESS)
        dynamics = priors.random_dynamics(key, (), self.latent_dim, self.innovation)
        return self.family.natural_from_standard(LDSGlobals(initial, dynamics))

    def blocks(self, length: Length) -> tuple:
        """One Gaussian chain."""
        return (GaussianChain(length, self.form),)

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E log p(z_1) + sum_t E log p(z_{t+1} | z_t)."""
        (z,) = stats
        initial = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        transitions = transition_log_density(theta.dynamics, z)
        linked = valid_steps(z.first.shape[0], length)[1:]
        return jnp.sum(initial) + jnp.sum(jnp.where(linked, transitions, 0))

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """One block."""
        return (chain_potential(potential),)

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """Not read."""
        return jax.tree.map(jnp.zeros_like, potentials)

    def generate(self, key: PRNGKeyArray, parameters: LDSGlobals, num_steps: int) -> tuple[Array]:
        """A path of the dynamical system."""
        first_key, path_key = jax.random.split(key)
        first = sample_normal(first_key, *parameters.initial)
        repeated = [jnp.broadcast_to(x, (num_steps - 1, *x.shape)) for x in parameters.dynamics]
        return (sample_dynamics(path_key, first, *repeated),)
