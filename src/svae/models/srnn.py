r"""The stochastic recurrent network: latent variables and frames that both go by their past.

$$ a_t = f(x_t), \quad h_t = \mathrm{LSTM}(h_{t-1}, a_{t-1}), \quad
   g_t = \mathrm{LSTM}(g_{t+1}, [a_t, h_t]), $$
$$ p(z_t \mid z_{t-1}, h_t), \quad q(z_t \mid z_{t-1}, g_t), \quad p(x_t \mid z_t, h_t). $$

Fraccaro et al., Sequential neural models with stochastic layers (2016); gates after Krishnan et al. (2017).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae.models.sequential import SequentialModel, Step, normal_step
from svae.networks import LSTM, MLP, GatedTransition, Likelihood, LSTMState, follows, precedes, shifted


class Past(NamedTuple):
    """z_{t-1}, and h_t with its memory."""

    z: Float[Array, "latent"]
    forward: LSTMState


class SRNN(SequentialModel):
    """Forward and backward recurrence around gated transitions."""

    embed: MLP
    forward: LSTM
    backward: LSTM
    posterior: GatedTransition
    prior: GatedTransition
    decoder: MLP
    likelihood: Likelihood
    latent_dim: int = eqx.field(static=True)
    num_features: int = eqx.field(static=True)

    def evidence(self, features, observed):
        """g. A block of observed frames has an h of its own here, as if nothing had come before it."""
        embedded = jnp.where(observed[..., None], self.embed(features), 0)
        forward = self.forward(shifted(embedded), observed, follows(observed))
        both = jnp.concatenate([embedded, forward], axis=-1)
        return self.backward(both, observed, precedes(observed), reverse=True)

    def begin(self, num_steps):
        """z_0 = 0, and h_1 from nothing."""
        state, embedded = self.forward.begin(), jnp.zeros(self.forward.input_weight.shape[1], self._dtype)
        return Past(jnp.zeros(self.latent_dim, self._dtype), self.forward.step(state, embedded))

    def latent(self, key, past, evidence, observed):
        """Both transitions from z_{t-1}."""
        posterior = self.posterior(jnp.concatenate([past.z, evidence]))
        prior = self.prior(jnp.concatenate([past.z, past.forward.output]))
        return normal_step(key, posterior, prior, observed)

    def decode(self, past, z):
        """From z_t and h_t."""
        return self.decoder(jnp.concatenate([z, past.forward.output]))

    def frame(self, features):
        """What h takes from it."""
        return self.embed(features) @ self.forward.input_weight.T

    def advance(self, past: Past, step: Step, frame: Array) -> Past:
        """The frame moves h on, whether it was observed or drawn."""
        return Past(step.z, self.forward.remember(past.forward, frame))

    @property
    def _dtype(self):
        return self.forward.bias.dtype


def make_srnn(
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    latent_dim: int = 16,
    wide: int = 256,
    hidden: int = 128,
) -> SRNN:
    """An untrained model; the paper's sizes by default."""
    keys = jax.random.split(key, 6)
    return SRNN(
        embed=MLP((likelihood.encoder_inputs(num_features), wide, hidden), keys[0]),
        forward=LSTM(hidden, hidden, keys[1]),
        backward=LSTM(2 * hidden, hidden, keys[2]),
        posterior=GatedTransition(latent_dim + hidden, hidden, latent_dim, keys[3]),
        prior=GatedTransition(latent_dim + hidden, hidden, latent_dim, keys[4]),
        decoder=MLP((latent_dim + hidden, wide, likelihood.num_outputs(num_features)), keys[5]),
        likelihood=likelihood,
        latent_dim=latent_dim,
        num_features=num_features,
    )
