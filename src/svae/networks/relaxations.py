r"""Choices among states that gradients pass through, at a price.

The concrete distribution makes a choice a point inside the simplex, $y = \mathrm{softmax}((l + G)/\tau)$
with Gumbel noise G: gradients are exact, of another model. The straight-through estimator keeps the choice
and pretends that it is its probabilities: the model is the right one, the gradients are not.
"""

import math
from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import log_softmax, logsumexp, softmax
from jaxtyping import Array, Float, PRNGKeyArray

COLDEST = 0.02  # temperature at the end of training, which begins at one


class Choice(NamedTuple):
    """A draw, and what it costs."""

    value: Float[Array, "k"]
    kl: Float[Array, ""]
    log_ratio: Float[Array, ""]  # log p - log q of the draw


class Relaxation(eqx.Module):
    """How to choose by log-probabilities of the posterior, and what that costs under those of the prior."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, posterior: Float[Array, "k"], prior: Float[Array, "k"]) -> Choice:
        """A draw from the posterior."""

    def __call__(
        self, key: PRNGKeyArray | None, posterior: Float[Array, "k"], prior: Float[Array, "k"]
    ) -> Choice:
        """From scores without a scale; without a key, the likeliest state."""
        posterior, prior = log_softmax(posterior), log_softmax(prior)
        if key is not None:
            return self.draw(key, posterior, prior)
        likeliest = jnp.argmax(posterior)
        best = jax.nn.one_hot(likeliest, posterior.shape[0], dtype=posterior.dtype)
        return Choice(best, categorical_kl(posterior, prior), (prior - posterior)[likeliest])


class StraightThrough(Relaxation):
    """One state, with the gradient of its probabilities."""

    def draw(self, key: PRNGKeyArray, posterior: Float[Array, "k"], prior: Float[Array, "k"]) -> Choice:
        """The KL divergence is exact, given what came before."""
        state = jax.random.categorical(key, posterior)
        one_hot = jax.nn.one_hot(state, posterior.shape[0], dtype=posterior.dtype)
        probability = softmax(posterior)
        value = one_hot + (probability - jax.lax.stop_gradient(probability))
        return Choice(value, categorical_kl(posterior, prior), jnp.sum(one_hot * (prior - posterior)))


class Concrete(Relaxation):
    """A point in the simplex, the nearer to a corner the lower the temperature."""

    log_temperature: Float[Array, ""]  # training lowers it, by a plan and not by its gradient

    def __init__(self, temperature: float = 1.0):
        self.log_temperature = jnp.asarray(math.log(temperature), jnp.float32)

    @property
    def temperature(self) -> Float[Array, ""]:
        """Never below the coldest."""
        return jnp.exp(jnp.maximum(jax.lax.stop_gradient(self.log_temperature), math.log(COLDEST)))

    def draw(self, key: PRNGKeyArray, posterior: Float[Array, "k"], prior: Float[Array, "k"]) -> Choice:
        """Prior and posterior share a temperature; their KL divergence is known only by its draw."""
        noise = jax.random.gumbel(key, posterior.shape, posterior.dtype)
        log_value = log_softmax((posterior + noise) / self.temperature)
        ratio = self._log_density(log_value, prior) - self._log_density(log_value, posterior)
        return Choice(jnp.exp(log_value), -ratio, ratio)

    def _log_density(self, log_value: Float[Array, "k"], log_probability: Float[Array, "k"]) -> Array:
        r"""Of log y, but for what does not depend on l: $\sum_i l_i - k \log\sum_i e^{l_i - \tau\log y_i}$.

        Near the corners y itself would be rounded to zero.
        """
        scaled = log_probability - self.temperature * log_value
        return jnp.sum(scaled) - log_value.shape[0] * logsumexp(scaled)


def categorical_kl(posterior: Float[Array, "k"], prior: Float[Array, "k"]) -> Float[Array, ""]:
    """From log-probabilities."""
    return jnp.sum(jnp.exp(posterior) * (posterior - prior))
