r"""From data to potentials on the latent variables: $\exp(r_t^\top z_t - \tfrac12 z_t^\top R_t z_t)$."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae.networks.layers import MLP, Residual

HIDDEN = (256, 128)  # the paper's encoder; the decoder has them in reverse


class Evidence(NamedTuple):
    """What one sequence says about its latent variables, step by step, as Gaussian potentials."""

    linear: Float[Array, "time latent"]  # r: precision times mean
    precision: Float[Array, "time latent"]  # the diagonal of R


def only_present(
    features: Float[Array, "time inputs"], present: Bool[Array, "time entries"]
) -> Float[Array, "time inputs"]:
    """Zeros in place of what is missing; `features` has the same number of columns for each entry."""
    seen = jnp.repeat(present, features.shape[-1] // present.shape[-1], axis=-1)
    return jnp.where(seen, features, 0)


class Encoder(eqx.Module):
    """A network that gives the potentials' means, step by step.

    Their precision is one learned vector for all steps and all data. A network with twice as many outputs
    as there are latent dimensions also tells by how much each step's log-precision differs from it. Of a
    step with missing entries the network sees zeros in their place, and its precision is that of the share
    of entries that are there. In training that is all there is; a fitted model asks the decoder about such
    steps instead (`svae.models.partial`).
    """

    network: Callable[[Array], Array]
    log_precision: Float[Array, "latent"]

    def __init__(self, network: Callable[[Array], Array], latent_dim: int, key: PRNGKeyArray | None = None):
        """`latent_dim` is the size of the precision."""
        self.network = network
        key = jax.random.key(0) if key is None else key
        self.log_precision = 0.01 * jax.random.normal(key, (latent_dim,), jnp.float32)

    def __call__(
        self, features: Float[Array, "time inputs"], present: Bool[Array, "time entries"]
    ) -> Evidence:
        """Potentials of every step; those of steps with no entry present are zero.

        `features` has the same number of columns for each entry, side by side.
        """
        output = self.network(only_present(features, present))
        mean, difference = jnp.split(output, [self.log_precision.shape[0]], axis=-1)
        log_precision = jnp.broadcast_to(self.log_precision, mean.shape)
        if difference.shape[-1] > 0:
            log_precision = log_precision + difference
        share = jnp.mean(present, axis=-1, keepdims=True, dtype=output.dtype)
        precision = share * jnp.exp(log_precision)
        return Evidence(precision * mean, precision)


def mlp_encoder(
    inputs: int,
    latent_dim: int,
    key: PRNGKeyArray,
    hidden: tuple[int, ...] = HIDDEN,
    precision_per_step: bool = False,
    kind: type[MLP] | type[Residual] = MLP,
) -> Encoder:
    """The paper's encoder, or one of another kind of network."""
    network_key, precision_key = jax.random.split(key)
    outputs = 2 * latent_dim if precision_per_step else latent_dim
    network = kind((inputs, *hidden, outputs), network_key)
    return Encoder(network, latent_dim, precision_key)


def mlp_decoder(
    latent_dim: int,
    outputs: int,
    key: PRNGKeyArray,
    hidden: tuple[int, ...] = HIDDEN,
    kind: type[MLP] | type[Residual] = MLP,
) -> MLP | Residual:
    """The paper's decoder, or one of another kind of network."""
    return kind((latent_dim, *reversed(hidden), outputs), key)
