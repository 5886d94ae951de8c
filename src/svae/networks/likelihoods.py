"""Distributions of data given the decoder's output.

A likelihood says how many outputs of the decoder it needs, what those mean, and how data should look to
an encoder. Write your own by offering the same things; only those that are abstract are a must.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae.expfam import LOG_2PI

INFORMATION_DRAWS = 64  # where there is no closed form
SMALLEST_POWER = 1e-10  # of a spectrogram: below it, the logarithm that the encoder sees is cut off


class Likelihood(eqx.Module):
    """p(x_t | decoder output), independent over features."""

    @abstractmethod
    def num_outputs(self, num_features: int) -> int:
        """Size of the decoder's output."""

    @abstractmethod
    def log_density(
        self, output: Float[Array, "*batch outputs"], x: Float[Array, "*batch features"]
    ) -> Float[Array, "*batch features"]:
        """log p(x | output), entry by entry."""

    @abstractmethod
    def mean(self, output: Float[Array, "*batch outputs"]) -> Float[Array, "*batch features"]:
        """E[x | output]."""

    @abstractmethod
    def sample(
        self, key: PRNGKeyArray, output: Float[Array, "*batch outputs"]
    ) -> Float[Array, "*batch features"]:
        """A draw."""

    def information(
        self,
        output: Float[Array, "*batch outputs"],
        present: Bool[Array, "*batch features"],
        tangent: Float[Array, "*batch outputs"],
    ) -> Float[Array, "*batch outputs"]:
        r"""Fisher information about the output of the entries that are present, times `tangent`.

        $F = \sum_e E[s_e s_e^\top]$ with $s_e$ the derivative of an entry's log-density; here from draws.
        """

        def add(total: Array, key: PRNGKeyArray) -> tuple[Array, None]:
            drawn = self.sample(key, output)
            density = lambda output: self.log_density(output, drawn)
            slopes = jax.jvp(density, (output,), (tangent,))[1]
            pulled = jax.vjp(density, output)[1](jnp.where(present, slopes, 0))[0]
            return total + pulled / INFORMATION_DRAWS, None

        keys = jax.random.split(jax.random.key(0), INFORMATION_DRAWS)
        return jax.lax.scan(add, jnp.zeros_like(output), keys)[0]

    def encoder_inputs(self, num_features: int) -> int:
        """How many numbers `features` gives for each step."""
        return num_features

    def features(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch inputs"]:
        """What the encoder sees of data: the same number of columns for each feature, side by side."""
        return x


class ExponentialLikelihood(Likelihood):
    """Data enter the log-density linearly, next to terms that have no parameters."""

    def information(self, output: Array, present: Array, tangent: Array) -> Array:
        """Exact: minus the second derivative where the data are their mean."""
        x = jax.lax.stop_gradient(self.mean(output))
        density = lambda output: jnp.sum(jnp.where(present, self.log_density(output, x), 0))
        return -jax.jvp(jax.grad(density), (output,), (tangent,))[1]


class Gaussian(ExponentialLikelihood):
    """N(output, diag(scale)^2), with one learned scale for each feature."""

    raw_scale: Float[Array, "features"]

    def __init__(self, num_features: int, initial: float = 1.0):
        """Start from scale softplus(`initial`), 1.31 by default."""
        self.raw_scale = jnp.full(num_features, initial, jnp.float32)

    @property
    def scale(self) -> Float[Array, "features"]:
        """Standard deviations."""
        return jax.nn.softplus(self.raw_scale)

    def num_outputs(self, num_features: int) -> int:
        """One mean for each feature."""
        return num_features

    def log_density(self, output: Array, x: Array) -> Array:
        """Of a normal."""
        scale = jnp.broadcast_to(self.scale, output.shape)
        return -0.5 * (((x - output) / scale) ** 2 + LOG_2PI) - jnp.log(scale)

    def mean(self, output: Array) -> Array:
        """The output itself."""
        return output

    def sample(self, key: PRNGKeyArray, output: Array) -> Array:
        """Mean plus noise."""
        scale = jnp.broadcast_to(self.scale, output.shape)
        return output + scale * jax.random.normal(key, output.shape, output.dtype)


class Gamma(ExponentialLikelihood):
    """Gamma with fixed concentration; the output is the logarithm of the rate. For power spectra."""

    concentration: float = eqx.field(default=2.0, static=True)

    def num_outputs(self, num_features: int) -> int:
        """One log-rate for each feature."""
        return num_features

    def log_density(self, output: Array, x: Array) -> Array:
        """a rho + (a - 1) log x - x e^rho - log Gamma(a)."""
        a = self.concentration
        x = jnp.maximum(x, SMALLEST_POWER)
        return a * output + (a - 1) * jnp.log(x) - x * jnp.exp(output) - gammaln(a)

    def mean(self, output: Array) -> Array:
        """Concentration over rate."""
        return self.concentration * jnp.exp(-output)

    def sample(self, key: PRNGKeyArray, output: Array) -> Array:
        """A draw."""
        return jax.random.gamma(key, self.concentration, output.shape, output.dtype) * jnp.exp(-output)

    def features(self, x: Array) -> Array:
        """log x."""
        return jnp.log(jnp.maximum(x, SMALLEST_POWER))


class Bernoulli(ExponentialLikelihood):
    """Zeros and ones; the output is the log-odds."""

    def num_outputs(self, num_features: int) -> int:
        """One log-odds for each feature."""
        return num_features

    def log_density(self, output: Array, x: Array) -> Array:
        """x s - log(1 + e^s)."""
        return x * output - jax.nn.softplus(output)

    def mean(self, output: Array) -> Array:
        """The probability of a one."""
        return jax.nn.sigmoid(output)

    def sample(self, key: PRNGKeyArray, output: Array) -> Array:
        """Zeros and ones."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(output)).astype(output.dtype)


class Poisson(ExponentialLikelihood):
    """Counts; the output is the logarithm of the rate."""

    def num_outputs(self, num_features: int) -> int:
        """One log-rate for each feature."""
        return num_features

    def log_density(self, output: Array, x: Array) -> Array:
        """x rho - e^rho - log x!."""
        return x * output - jnp.exp(output) - gammaln(x + 1)

    def mean(self, output: Array) -> Array:
        """The rate."""
        return jnp.exp(output)

    def sample(self, key: PRNGKeyArray, output: Array) -> Array:
        """Counts."""
        return jax.random.poisson(key, jnp.exp(output)).astype(output.dtype)

    def features(self, x: Array) -> Array:
        """log(1 + x)."""
        return jnp.log1p(x)


class Categorical(ExponentialLikelihood):
    """Classes 0, 1, ..., as numbers; the output is their log-probabilities, unnormalised."""

    num_classes: int = eqx.field(static=True)

    def num_outputs(self, num_features: int) -> int:
        """One score for each class of each feature."""
        return num_features * self.num_classes

    def _scores(self, output: Array) -> Array:
        scores = output.reshape(*output.shape[:-1], -1, self.num_classes)
        return jax.nn.log_softmax(scores, axis=-1)

    def _one_hot(self, x: Array) -> Array:
        return jax.nn.one_hot(x.astype(jnp.int32), self.num_classes, dtype=x.dtype)

    def log_density(self, output: Array, x: Array) -> Array:
        """The log-probability of the class that x is."""
        return jnp.sum(self._scores(output) * self._one_hot(x), axis=-1)

    def mean(self, output: Array) -> Array:
        """The most probable class (classes have no mean)."""
        return jnp.argmax(self._scores(output), axis=-1).astype(output.dtype)

    def sample(self, key: PRNGKeyArray, output: Array) -> Array:
        """Classes."""
        return jax.random.categorical(key, self._scores(output)).astype(output.dtype)

    def encoder_inputs(self, num_features: int) -> int:
        """One-hot vectors, side by side."""
        return num_features * self.num_classes

    def features(self, x: Array) -> Array:
        """One-hot vectors, side by side."""
        return self._one_hot(x).reshape(*x.shape[:-1], -1)
