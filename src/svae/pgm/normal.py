r"""Standard normal latent variables, independent at each step: the prior of the plain VAE.

$$ z_t \sim N(0, I) $$
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae.chains import IndependentSteps, Length, valid_steps
from svae.expfam import LOG_2PI, Gaussian, GaussianTerms, Product
from svae.meanfield import Blocks
from svae.pgm.base import GraphicalModel


class StandardNormal(GraphicalModel):
    """No unknown parameters."""

    latent_dim: int = eqx.field(static=True)

    @property
    def family(self) -> Product:
        """No parameters."""
        return Product(())

    def prior(self) -> tuple:
        """Nothing."""
        return ()

    def initial(self, key: PRNGKeyArray) -> tuple:
        """Nothing."""
        return ()

    def blocks(self, length: Length) -> tuple:
        """Independent Gaussians."""
        return (IndependentSteps(Gaussian(), length),)

    def energy(self, theta: tuple, stats: Blocks, length: Length) -> Float[Array, ""]:
        """sum_t E log N(z_t; 0, I)."""
        (z,) = stats
        squares = jnp.trace(z.second, axis1=-2, axis2=-1)
        log_density = -0.5 * (squares + self.latent_dim * LOG_2PI)
        return jnp.sum(jnp.where(valid_steps(z.first.shape[0], length), log_density, 0))

    def wrap(self, potential: GaussianTerms) -> Blocks:
        """One block."""
        return (potential,)

    def start(self, theta: tuple, potentials: Blocks, length: Length) -> Blocks:
        """Not read."""
        return jax.tree.map(jnp.zeros_like, potentials)

    def generate(self, key: PRNGKeyArray, parameters: tuple, num_steps: int) -> tuple[Array]:
        """Standard normal draws."""
        return (jax.random.normal(key, (num_steps, self.latent_dim)),)
