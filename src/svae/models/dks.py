r"""The deep Kalman smoother: a latent path with gated transitions, read backwards.

$$ y_t = g(x_t, y_{t+1}), \quad p(z_t \mid z_{t-1}), \quad q(z_t \mid z_{t-1}, y_t), \quad p(x_t \mid z_t). $$

Krishnan et al., Structured inference networks for nonlinear state space models (2017).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from svae.models.sequential import SequentialModel, Step, normal_step
from svae.networks import (
    MLP,
    BackwardEncoder,
    Combiner,
    GatedTransition,
    Likelihood,
    Residual,
    mlp_decoder,
)


class DKS(SequentialModel):
    """The past of a step is the latent variables just before it."""

    encoder: BackwardEncoder
    posterior: Combiner
    prior: GatedTransition
    decoder: MLP | Residual
    likelihood: Likelihood
    latent_dim: int = eqx.field(static=True)
    num_features: int = eqx.field(static=True)

    def evidence(self, features, observed):
        """y."""
        return self.encoder(features, observed)

    def begin(self, num_steps):
        """z_0 = 0."""
        return jnp.zeros(self.latent_dim, self.encoder.head.bias.dtype)

    def latent(self, key, past, evidence, observed):
        """Both from z_{t-1}."""
        return normal_step(key, self.posterior(past, evidence), self.prior(past), observed)

    def decode(self, past, z):
        """From z_t alone."""
        return self.decoder(z)

    def advance(self, past: Array, step: Step, frame: Array) -> Array:
        """z_t is all that is left behind."""
        return step.z


def make_dks(
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    latent_dim: int = 16,
    hidden: tuple[int, int] = (256, 128),
    width: int = 192,
) -> DKS:
    """An untrained model; the paper's sizes by default."""
    keys = jax.random.split(key, 4)
    return DKS(
        encoder=BackwardEncoder(likelihood.encoder_inputs(num_features), *hidden, width, keys[0]),
        posterior=Combiner(latent_dim, width, width // 2, keys[1]),
        prior=GatedTransition(latent_dim, width, latent_dim, keys[2]),
        decoder=mlp_decoder(latent_dim, likelihood.num_outputs(num_features), keys[3], hidden),
        likelihood=likelihood,
        latent_dim=latent_dim,
        num_features=num_features,
    )
