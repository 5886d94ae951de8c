r"""The Transformer VAE: latent variables and frames that go by all of their past, by attention.

$$ q(z \mid x) = \prod_t q(z_t \mid x), \quad p(z_1) = N(0, I), \quad p(z_{t+1} \mid z_{1:t}, x_{1:t}), \quad
   p(x_t \mid z_{1:t}, x_{1:t-1}). $$

The first frame has no frames before it, and sees none. Where all frames are observed, every step is computed
at once; what is missing is drawn step by step first, and gradients take those draws as they are.

After Lin et al., Variational Transformers (2020), in the form without a variable of the whole sequence.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.models.base import Batch, Complete
from svae.models.sequential import SequentialModel, Step, Trace, normal_step, step_keys
from svae.networks import AttentionEncoder, CausalDecoder, Likelihood, Normal, earlier, positive, same_block


class Past(NamedTuple):
    """Everything so far, and zeros in place of what is to come."""

    z: Float[Array, "time latent"]
    features: Float[Array, "time inputs"]
    step: Int[Array, ""]


class TransformerVAE(SequentialModel):
    """One encoder, and a decoder each for latent variables and frames."""

    encoder: AttentionEncoder
    prior: CausalDecoder
    decoder: CausalDecoder
    likelihood: Likelihood
    latent_dim: int = eqx.field(static=True)
    num_features: int = eqx.field(static=True)

    def evidence(self, features, observed):
        """q(z_t), from the block of observed frames that t is in."""
        return jax.vmap(self._posterior)(features, observed)

    def _posterior(self, features: Float[Array, "time inputs"], observed: Bool[Array, "time"]) -> Normal:
        return _normal(self.encoder(features, same_block(observed)))

    def priors(self, z: Float[Array, "time latent"], features: Float[Array, "time inputs"]) -> Normal:
        """p(z_t) of every step, from what came before it."""
        following = _normal(self.prior(z, features, earlier(z.shape[0], now=True)))
        first = Normal(jnp.zeros_like(z[:1]), jnp.ones_like(z[:1]))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[:-1]]), first, following)

    def outputs(
        self, z: Float[Array, "time latent"], features: Float[Array, "time inputs"]
    ) -> Float[Array, "time outputs"]:
        """The likelihood's parameters of every step, from earlier frames and latent variables up to it."""
        return self.decoder(z, features, earlier(z.shape[0], now=False))

    def begin(self, num_steps):
        """Nothing yet."""
        inputs, dtype = self.encoder.embed.dense.weight.shape[1], self.encoder.head.bias.dtype
        nothing = lambda size: jnp.zeros((num_steps, size), dtype)
        return Past(nothing(self.latent_dim), nothing(inputs), jnp.zeros((), jnp.int32))

    def latent(self, key, past, evidence, observed):
        """From the prior's row of this step."""
        prior = jax.tree.map(lambda x: x[past.step], self.priors(past.z, past.features))
        return normal_step(key, evidence, prior, observed)

    def decode(self, past, z):
        """The decoder's row of this step."""
        return self.outputs(past.z.at[past.step].set(z), past.features)[past.step]

    def advance(self, past: Past, step: Step, frame: Array) -> Past:
        """Written down."""
        return Past(
            past.z.at[past.step].set(step.z),
            past.features.at[past.step].set(frame),
            past.step + 1,
        )

    def run(self, key: PRNGKeyArray | None, batch: Batch) -> Trace:
        """All steps at once, after what is missing has been drawn, if anything is."""
        keys = None if key is None else jax.random.split(key, batch.values.shape[0])
        values, present = batch.filled, batch.present

        def step_by_step() -> tuple[Array, Array]:
            drawn = self.walk(keys, values, present)
            return jax.lax.stop_gradient((drawn.values, drawn.steps.z))

        def as_it_is() -> tuple[Array, Array]:
            return values, jnp.zeros((*values.shape[:2], self.latent_dim), values.dtype)

        if isinstance(batch, Complete):
            values, z = as_it_is()
        else:
            values, z = jax.lax.cond(jnp.any(batch.inside[:, :, None] & ~present), step_by_step, as_it_is)
        return jax.vmap(self.at_once)(keys, values, z, batch.filled, present)

    def at_once(
        self,
        key: PRNGKeyArray | None,
        values: Float[Array, "time features"],
        drawn: Float[Array, "time latent"],
        filled: Float[Array, "time features"],
        present: Bool[Array, "time features"],
    ) -> Trace:
        """Every step of one sequence in which nothing is missing any more."""
        observed = jnp.any(present, axis=-1)
        posterior = self._posterior(self.seen(filled, present), observed)
        latent_keys = None if key is None else step_keys(key, values.shape[0])[0]
        z = jax.vmap(Normal.sample)(posterior, latent_keys)
        z = jnp.where(observed[:, None], z, drawn)
        features = self.likelihood.features(values)
        steps = jax.vmap(normal_step)(latent_keys, posterior, self.priors(z, features), observed)
        return Trace(steps._replace(z=z), self.outputs(z, features), values)


def _normal(output: Float[Array, "time twice"]) -> Normal:
    """Means, and deviations."""
    mean, deviation = jnp.split(output, 2, axis=-1)
    return Normal(mean, positive(deviation))


def make_transformer_vae(
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    latent_dim: int = 16,
    width: int = 256,
) -> TransformerVAE:
    """An untrained model; the paper's sizes by default."""
    keys = jax.random.split(key, 3)
    inputs = likelihood.encoder_inputs(num_features)
    return TransformerVAE(
        encoder=AttentionEncoder(inputs, width, 2 * latent_dim, keys[0]),
        prior=CausalDecoder(latent_dim, inputs, width, 2 * latent_dim, keys[1]),
        decoder=CausalDecoder(latent_dim, inputs, width, likelihood.num_outputs(num_features), keys[2]),
        likelihood=likelihood,
        latent_dim=latent_dim,
        num_features=num_features,
    )
