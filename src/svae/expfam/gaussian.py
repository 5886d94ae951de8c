r"""Multivariate normal: $t(x) = (x, x x^\top)$, natural $(\Sigma^{-1}\mu, -\tfrac12\Sigma^{-1})$."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from svae import checks, linalg
from svae.expfam import constraints
from svae.expfam.family import ParameterFamily

LOG_2PI = float(np.log(2 * np.pi))


class GaussianTerms(NamedTuple):
    """Pairs with x and x x'."""

    first: Float[Array, "*batch n"]
    second: Float[Array, "*batch n n"]


class GaussianParameters(NamedTuple):
    """The standard parameters."""

    mean: Float[Array, "*batch n"]
    covariance: Float[Array, "*batch n n"]


class GaussianUnconstrained(NamedTuple):
    """Mean, and the covariance as scales and correlations."""

    mean: Float[Array, "*batch n"]
    covariance: Float[Array, "*batch p"]


class Gaussian(ParameterFamily):
    """The multivariate normal family."""

    def infer(self, natural: GaussianTerms) -> tuple[Float[Array, "*batch"], GaussianTerms]:
        """log Z = (m'Jm - log|J| + n log 2 pi) / 2 with J = -2 second, m = J^-1 first."""
        covariance, log_det = linalg.inverse_and_log_det(-2 * natural.second)
        mean = linalg.matvec(covariance, natural.first)
        size = natural.first.shape[-1]
        log_partition = 0.5 * (jnp.sum(natural.first * mean, axis=-1) - log_det + size * LOG_2PI)
        return log_partition, GaussianTerms(mean, covariance + linalg.outer(mean, mean))

    def infer_standard(self, standard: GaussianParameters) -> tuple[Float[Array, "*batch"], GaussianTerms]:
        """From mean and covariance."""
        return self.infer(self.natural_from_standard(standard))

    def sample(self, key: PRNGKeyArray, natural: GaussianTerms) -> Float[Array, "*batch n"]:
        """Mean plus W' noise, where W' W is the covariance."""
        factor = linalg.inverse_cholesky(-2 * natural.second)
        noise = jax.random.normal(key, natural.first.shape, natural.first.dtype)
        whitened = linalg.matvec(factor, natural.first)
        return linalg.matvec(linalg.transpose(factor), whitened + noise)

    def sufficient_stats(self, value: Float[Array, "*batch n"]) -> GaussianTerms:
        """(x, x x')."""
        return GaussianTerms(value, linalg.outer(value, value))

    def natural_from_standard(self, standard: GaussianParameters) -> GaussianTerms:
        """(Sigma^-1 mu, -Sigma^-1 / 2)."""
        mean, covariance = standard
        size = checks.require_square("covariance", covariance)
        checks.require_shape("mean", mean, (size,))
        checks.require_positive_definite("covariance", covariance)
        checks.require_finite("mean", mean)
        precision = linalg.inverse(covariance)
        return GaussianTerms(linalg.matvec(precision, mean), -0.5 * precision)

    def standard_from_natural(self, natural: GaussianTerms) -> GaussianParameters:
        """(mu, Sigma)."""
        covariance = linalg.inverse(-2 * natural.second)
        return GaussianParameters(linalg.matvec(covariance, natural.first), covariance)

    def standard_from_unconstrained(self, unconstrained: GaussianUnconstrained) -> GaussianParameters:
        """Any reals give a mean and a covariance."""
        mean, packed = unconstrained
        return GaussianParameters(mean, constraints.spd_from_unconstrained(packed, 0.0))

    def unconstrained_from_standard(self, standard: GaussianParameters) -> GaussianUnconstrained:
        """Mean, scales and correlations."""
        mean, covariance = standard
        return GaussianUnconstrained(mean, constraints.unconstrained_from_spd(covariance, 0.0))

    def harmless(self, natural: GaussianTerms) -> GaussianTerms:
        """Standard normals in the shape of `natural`."""
        return GaussianTerms(jnp.zeros_like(natural.first), -0.5 * linalg.identity_like(natural.second))
