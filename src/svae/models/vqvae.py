r"""The vector-quantised VAE of frames, with an autoregressive prior over its codes.

The encoder's output e_t becomes the nearest of K code vectors, and that is all the decoder sees:

$$ k_t = \arg\min_k \|e(x_t) - c_k\|^2, \qquad p(x, k) = \prod_t p(k_t \mid k_{<t})\, p(x_t \mid c_{k_t}). $$

The posterior is certain of its codes, so log p(x, k) is a bound of the evidence as it stands. What has no
derivative is learned as in van den Oord et al., Neural discrete representation learning (2017): the decoder's
gradient is handed on to the encoder, and codes and encoder are drawn to each other by

$$ \|\bar e_t - c_{k_t}\|^2 + \beta\, \|e_t - \bar c_{k_t}\|^2 $$

(bars: constants). That pull has a gradient here, but no value: the bound stays a bound. The prior learns from
codes as they are, and does not change them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from svae.models.sequential import SequentialModel, Step
from svae.networks import LSTM, MLP, Dense, Likelihood, LSTMState, either

COMMITMENT = 0.25  # beta


class VQVAE(SequentialModel):
    """Codes in place of latent paths. The past of a step is what the prior remembers of the codes."""

    encoder: MLP
    codes: Float[Array, "k latent"]
    memory: LSTM
    scores: Dense
    decoder: MLP
    likelihood: Likelihood
    num_features: int = eqx.field(static=True)

    @property
    def num_states(self) -> int:
        """As many as there are codes."""
        return self.codes.shape[0]

    def evidence(self, features, observed):
        """e, frame by frame."""
        return self.encoder(features)

    def begin(self, num_steps):
        """No code yet."""
        return self.memory.step(self.memory.begin(), jnp.zeros(self.codes.shape[0], self.codes.dtype))

    def latent(self, key, past, evidence, observed):
        """The nearest code, or one from the prior."""
        prior = jax.nn.log_softmax(self.scores(past.output))
        distance = jnp.sum((evidence[None] - self.codes) ** 2, axis=-1)
        drawn = jnp.argmax(prior) if key is None else jax.random.categorical(key, prior)
        state = either(observed, jnp.argmin(distance), drawn)
        code = self.codes[state]
        handed_on = evidence + stop_gradient(code - evidence)
        pull = jnp.sum((stop_gradient(evidence) - code) ** 2)
        pull = pull + COMMITMENT * jnp.sum((evidence - stop_gradient(code)) ** 2)
        choice = jax.nn.one_hot(state, self.codes.shape[0], dtype=code.dtype)
        return Step(
            z=either(observed, handed_on, code),
            deviation=jnp.zeros_like(code),
            kl=-prior[state] + pull - stop_gradient(pull),
            log_ratio=prior[state],
            choice=choice,
            probability=either(observed, choice, jnp.exp(prior)),
        )

    def decode(self, past, z):
        """From the code alone."""
        return self.decoder(z)

    def advance(self, past: LSTMState, step: Step, frame: Array) -> LSTMState:
        """The prior remembers codes, not frames."""
        assert step.choice is not None
        return self.memory.step(past, stop_gradient(step.choice))


def make_vqvae(
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    latent_dim: int = 16,
    num_states: int = 512,
    hidden: tuple[int, ...] = (256, 128),
    memory: int = 128,
) -> VQVAE:
    """An untrained model with the networks of the paper's SVAE."""
    keys = jax.random.split(key, 5)
    inputs = likelihood.encoder_inputs(num_features)
    return VQVAE(
        encoder=MLP((inputs, *hidden, latent_dim), keys[0]),
        codes=jax.random.normal(keys[1], (num_states, latent_dim), jnp.float32),
        memory=LSTM(num_states, memory, keys[2]),
        scores=Dense(memory, num_states, keys[3]),
        decoder=MLP((latent_dim, *reversed(hidden), likelihood.num_outputs(num_features)), keys[4]),
        likelihood=likelihood,
        num_features=num_features,
    )
