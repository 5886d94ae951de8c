r"""Dirichlet over probabilities $\pi$: $t(\pi) = \log\pi$, natural parameters $\alpha - 1$."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from svae import checks
from svae.expfam import constraints
from svae.expfam.family import LEAST_KEPT, ParameterFamily


class DirichletTerms(NamedTuple):
    """Pairs with log pi: as a natural parameter, pseudo-counts (alpha - 1)."""

    log_probability: Float[Array, "*batch k"]


class DirichletParameters(NamedTuple):
    """The standard parameters."""

    concentration: Float[Array, "*batch k"]


class DirichletUnconstrained(NamedTuple):
    """The concentration before its softplus."""

    concentration: Float[Array, "*batch k"]


class Dirichlet(ParameterFamily):
    """The Dirichlet family.

    `minimum` bounds the concentrations that the unconstrained parameters can reach: below it E[log pi]
    runs off to minus infinity without changing E[pi].
    """

    minimum: float = eqx.field(default=0.01, static=True)

    def infer_standard(self, standard: DirichletParameters) -> tuple[Float[Array, "*batch"], DirichletTerms]:
        """log Z = sum log Gamma(alpha) - log Gamma(sum alpha);  E log pi = psi(alpha) - psi(sum alpha)."""
        (alpha,) = standard
        total = jnp.sum(alpha, axis=-1)
        log_partition = jnp.sum(gammaln(alpha), axis=-1) - gammaln(total)
        return log_partition, DirichletTerms(digamma(alpha) - digamma(total)[..., None])

    def sample(self, key: PRNGKeyArray, natural: DirichletTerms) -> Float[Array, "*batch k"]:
        """Probabilities."""
        concentration = natural.log_probability + 1
        return jax.random.dirichlet(key, concentration, dtype=concentration.dtype)

    def sufficient_stats(self, value: Float[Array, "*batch k"]) -> DirichletTerms:
        """log pi; of zeros too, which draws with small concentrations have, a number and not -infinity."""
        return DirichletTerms(jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny)))

    def natural_from_standard(self, standard: DirichletParameters) -> DirichletTerms:
        """alpha - 1."""
        checks.require_above("concentration", standard.concentration, 0.0)
        return DirichletTerms(standard.concentration - 1)

    def standard_from_natural(self, natural: DirichletTerms) -> DirichletParameters:
        """alpha."""
        return DirichletParameters(natural.log_probability + 1)

    def advance(self, standard: DirichletParameters, step: DirichletTerms) -> DirichletParameters:
        """Concentration by concentration."""
        (alpha,) = standard
        least = jnp.maximum(LEAST_KEPT * alpha, 1.01 * self.minimum)
        return DirichletParameters(jnp.maximum(alpha + step.log_probability, least))

    def standard_from_unconstrained(self, unconstrained: DirichletUnconstrained) -> DirichletParameters:
        """Concentrations above `minimum`."""
        (free,) = unconstrained
        return DirichletParameters(constraints.above_from_unconstrained(free, self.minimum))

    def unconstrained_from_standard(self, standard: DirichletParameters) -> DirichletUnconstrained:
        """The inverse softplus."""
        (alpha,) = standard
        checks.require_above("concentration", alpha, self.minimum)
        return DirichletUnconstrained(constraints.unconstrained_from_above(alpha, self.minimum))
