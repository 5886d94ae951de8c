"""Distributions of one step given the step before: diagonal normals, and the networks that give them."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae.expfam import LOG_2PI
from svae.networks.layers import Dense

LEAST_DEVIATION = 1e-6  # softplus underflows far out, and nothing may be divided by zero there


class Normal(NamedTuple):
    """Independent normal variables."""

    mean: Float[Array, "*batch n"]
    deviation: Float[Array, "*batch n"]

    def sample(self, key: PRNGKeyArray | None) -> Float[Array, "*batch n"]:
        """A draw that gradients pass through; without a key, the mean."""
        if key is None:
            return self.mean
        return self.mean + self.deviation * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def log_density(self, z: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """Of all variables together."""
        scaled = (z - self.mean) / self.deviation
        return -jnp.sum(0.5 * (scaled**2 + LOG_2PI) + jnp.log(self.deviation), axis=-1)

    def kl(self, other: "Normal") -> Float[Array, "*batch"]:
        r"""$\tfrac12\sum (r^2 - 1 - \log r^2) + \tfrac12\sum((m - m')/s')^2$, with $r = s/s'$."""
        ratio = (self.deviation / other.deviation) ** 2
        gap = ((self.mean - other.mean) / other.deviation) ** 2
        return 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + gap, axis=-1)


def positive(x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """A deviation from any number."""
    return jax.nn.softplus(x) + LEAST_DEVIATION


def either(condition: Bool[Array, "*batch"] | Literal[True], one: Any, other: Any) -> Any:
    """Leaf by leaf: `one` where the condition is true."""
    if condition is True:  # known when the program is made, which then need not have the other
        return one
    along = lambda x: condition.reshape(condition.shape + (1,) * (x.ndim - condition.ndim))
    return jax.tree.map(lambda x, y: jnp.where(along(x), x, y), one, other)


class GatedTransition(eqx.Module):
    r"""Linear where that is enough, and a network where it is not.

    $$ \nu = \sigma(B\,\mathrm{relu}(A u)), \quad p = D\,\mathrm{relu}(C u), \quad
       m = (1-\nu)\, E u + \nu\, p, \quad s = \mathrm{softplus}(F\,\mathrm{relu}(p)). $$
    """

    gate: tuple[Dense, Dense]
    proposal: tuple[Dense, Dense]
    linear: Dense
    deviation: Dense

    def __init__(self, inputs: int, width: int, latent_dim: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        self.gate = Dense(inputs, width, keys[0]), Dense(width, latent_dim, keys[1])
        self.proposal = Dense(inputs, width, keys[2]), Dense(width, latent_dim, keys[3])
        self.linear = Dense(inputs, latent_dim, keys[4])
        self.deviation = Dense(latent_dim, latent_dim, keys[5])

    def __call__(self, u: Float[Array, "*batch inputs"]) -> Normal:
        """Of the next step."""
        two_layers = lambda layers: layers[1](jax.nn.relu(layers[0](u)))
        gate, proposal = jax.nn.sigmoid(two_layers(self.gate)), two_layers(self.proposal)
        mean = (1 - gate) * self.linear(u) + gate * proposal
        return Normal(mean, positive(self.deviation(jax.nn.relu(proposal))))


class Combiner(eqx.Module):
    r"""A posterior from the step before and what the encoder says, with equal weight.

    $$ c = \tanh\big(B \tfrac12(\tanh(A z_{t-1}) + y_t)\big), \quad
       m = C c, \quad s = \mathrm{softplus}(D c). $$
    """

    before: Dense
    hidden: Dense
    mean: Dense
    deviation: Dense

    def __init__(self, latent_dim: int, evidence: int, width: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.before = Dense(latent_dim, evidence, keys[0])
        self.hidden = Dense(evidence, width, keys[1])
        self.mean, self.deviation = Dense(width, latent_dim, keys[2]), Dense(width, latent_dim, keys[3])

    def __call__(self, z: Float[Array, "*batch latent"], evidence: Float[Array, "*batch evidence"]) -> Normal:
        """Of this step."""
        c = jnp.tanh(self.hidden(0.5 * (jnp.tanh(self.before(z)) + evidence)))
        return Normal(self.mean(c), positive(self.deviation(c)))
