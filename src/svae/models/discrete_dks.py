r"""The deep Kalman smoother with discrete states, whose gradients are those of a relaxation.

$$ p(k_t \mid z_{t-1}, k_{t-1})\, p(z_t \mid z_{t-1}, k_t)\, p(x_t \mid z_t), \qquad
   q(k_t \mid y_t, z_{t-1}, k_{t-1})\, q(z_t \mid y_t, z_{t-1}, k_t). $$

All means and probabilities are networks; each of p and q has one deviation for all steps.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import softmax
from jaxtyping import Array, Float, PRNGKeyArray

from svae.models.sequential import SequentialModel, Step, normal_step
from svae.networks import (
    MLP,
    BackwardEncoder,
    LayerNorm,
    Likelihood,
    Normal,
    Relaxation,
    Residual,
    either,
    mlp_decoder,
)

LEAST_LOG_DEVIATION = -3.0


class Past(NamedTuple):
    """z_{t-1} and k_{t-1}."""

    z: Float[Array, "latent"]
    choice: Float[Array, "k"]


class SwitchingNetwork(eqx.Module):
    """States from the step before; then, given a state, the path."""

    norms: tuple[LayerNorm, LayerNorm]
    state: MLP
    mean: MLP
    log_deviation: Float[Array, "latent"]

    def __init__(self, latent_dim: int, num_states: int, evidence: int, width: int, key: PRNGKeyArray):
        state_key, mean_key, deviation_key = jax.random.split(key, 3)
        inputs = evidence + latent_dim + num_states
        self.norms = LayerNorm(inputs), LayerNorm(inputs)
        self.state = MLP((inputs, width, width, num_states), state_key)
        self.mean = MLP((inputs, width, width, latent_dim), mean_key)
        self.log_deviation = 0.1 * jax.random.normal(deviation_key, (latent_dim,), jnp.float32)

    def scores(self, *inputs: Array) -> Float[Array, "k"]:
        """Of the states, from y_t (of a posterior), z_{t-1} and k_{t-1}."""
        return self.state(self.norms[0](jnp.concatenate(inputs)))

    def normal(self, *inputs: Array) -> Normal:
        """Of z_t, from y_t (of a posterior), z_{t-1} and k_t."""
        mean = self.mean(self.norms[1](jnp.concatenate(inputs)))
        return Normal(mean, jnp.exp(jnp.maximum(self.log_deviation, LEAST_LOG_DEVIATION)))


class DiscreteDKS(SequentialModel):
    """The past of a step is the state and the latent variables just before it."""

    encoder: BackwardEncoder
    posterior: SwitchingNetwork
    prior: SwitchingNetwork
    decoder: MLP | Residual
    likelihood: Likelihood
    relaxation: Relaxation
    latent_dim: int = eqx.field(static=True)
    num_features: int = eqx.field(static=True)

    @property
    def num_states(self) -> int:
        """As many as the prior chooses from."""
        return self.prior.state.layers[-1].bias.shape[0]

    def evidence(self, features, observed):
        """y."""
        return self.encoder(features, observed)

    def begin(self, num_steps):
        """z_0 = 0, and all ones for a state, as no state is."""
        dtype = self.encoder.head.bias.dtype
        return Past(jnp.zeros(self.latent_dim, dtype), jnp.ones(self.num_states, dtype))

    def latent(self, key, past, evidence, observed):
        """The state first, then the path."""
        state_key, path_key = (None, None) if key is None else jax.random.split(key)
        prior_scores = self.prior.scores(*past)
        scores = either(observed, self.posterior.scores(evidence, *past), prior_scores)
        choice = self.relaxation(state_key, scores, prior_scores)
        posterior = self.posterior.normal(evidence, past.z, choice.value)
        step = normal_step(path_key, posterior, self.prior.normal(past.z, choice.value), observed)
        return step._replace(
            kl=step.kl + choice.kl,
            log_ratio=step.log_ratio + choice.log_ratio,
            choice=choice.value,
            probability=softmax(scores),
        )

    def decode(self, past, z):
        """From z_t alone."""
        return self.decoder(z)

    def advance(self, past: Past, step: Step, frame: Array) -> Past:
        """z_t and k_t are all that is left behind."""
        assert step.choice is not None
        return Past(step.z, step.choice)


def make_discrete_dks(
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    relaxation: Relaxation,
    latent_dim: int = 16,
    num_states: int = 50,
    hidden: tuple[int, int] = (256, 128),
    evidence: int = 192,
    width: int = 64,
) -> DiscreteDKS:
    """An untrained model; the paper's sizes by default."""
    keys = jax.random.split(key, 4)
    return DiscreteDKS(
        encoder=BackwardEncoder(likelihood.encoder_inputs(num_features), *hidden, evidence, keys[0]),
        posterior=SwitchingNetwork(latent_dim, num_states, evidence, width, keys[1]),
        prior=SwitchingNetwork(latent_dim, num_states, 0, width, keys[2]),
        decoder=mlp_decoder(latent_dim, likelihood.num_outputs(num_features), keys[3], hidden),
        likelihood=likelihood,
        relaxation=relaxation,
        latent_dim=latent_dim,
        num_features=num_features,
    )
