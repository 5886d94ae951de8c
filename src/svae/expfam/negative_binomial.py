r"""The conjugate prior of a negative binomial whose size is one of a few.

$$ \log p(d \mid r, p) = \log\binom{r + d - 1}{d} + d \log p + r \log(1 - p) $$

is linear in $1[r = r_j]$, $1[r = r_j] \log p$ and $1[r = r_j] \log(1 - p)$. These are the sufficient
statistics of a size drawn with weights, and a Beta for p given each size:

$$ q(r_j, p) = w_j\, \mathrm{Beta}(p; a_j, b_j), \qquad
   \log Z = \log \sum_j e^{\eta_j} B(a_j, b_j), \quad \eta_j = \log w_j - \log B(a_j, b_j). $$

No independence of r and p is assumed, and none holds: the mean of d, r p / (1 - p), ties them together.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import log_softmax, logsumexp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae import checks
from svae.expfam import constraints
from svae.expfam.family import LEAST_KEPT, ParameterFamily, add


class NegativeBinomialTerms(NamedTuple):
    """Pairs with 1[r = r_j], and with the same times log p and times log(1 - p)."""

    size: Float[Array, "*batch r"]
    again: Float[Array, "*batch r"]
    end: Float[Array, "*batch r"]


class NegativeBinomialParameters(NamedTuple):
    """Log-probability of each size, and the Beta of p given it."""

    log_weight: Float[Array, "*batch r"]
    again: Float[Array, "*batch r"]
    end: Float[Array, "*batch r"]


class NegativeBinomialUnconstrained(NamedTuple):
    """Log-weights relative to the last, which is left out; the Betas before their softplus."""

    log_weight: Float[Array, "*batch r_minus_1"]
    again: Float[Array, "*batch r"]
    end: Float[Array, "*batch r"]


class NegativeBinomialValue(NamedTuple):
    """The number of the size in the list of sizes, and p."""

    size: Int[Array, "*batch"]
    again: Float[Array, "*batch"]


class NegativeBinomialPrior(ParameterFamily):
    """`num_sizes` sizes, whatever they are: only a model's energy says that."""

    num_sizes: int = eqx.field(static=True)
    minimum: float = eqx.field(default=0.01, static=True)  # of the Betas' parameters

    def infer(self, natural: NegativeBinomialTerms) -> tuple[Float[Array, "*batch"], NegativeBinomialTerms]:
        """Log-partition and expected statistics."""
        standard = self.standard_from_natural(natural)
        total = logsumexp(natural.size + _log_beta(standard.again, standard.end), axis=-1)
        return total, self.infer_standard(standard)[1]

    def infer_standard(
        self, standard: NegativeBinomialParameters
    ) -> tuple[Float[Array, "*batch"], NegativeBinomialTerms]:
        """E 1[r_j] log p = w_j (psi(a_j) - psi(a_j + b_j)), and likewise of log(1 - p)."""
        log_weight, a, b = standard
        weight, both = jnp.exp(log_weight), digamma(a + b)
        stats = NegativeBinomialTerms(weight, weight * (digamma(a) - both), weight * (digamma(b) - both))
        return logsumexp(log_weight, axis=-1), stats

    def sample(self, key: PRNGKeyArray, natural: NegativeBinomialTerms) -> NegativeBinomialValue:
        """A size, and p given it."""
        log_weight, a, b = self.standard_from_natural(natural)
        size_key, key = jax.random.split(key)
        size = jax.random.categorical(size_key, log_weight, axis=-1)
        own = lambda x: jnp.take_along_axis(x, size[..., None], axis=-1)[..., 0]
        return NegativeBinomialValue(size, jax.random.beta(key, own(a), own(b), dtype=a.dtype))

    def sufficient_stats(self, value: NegativeBinomialValue) -> NegativeBinomialTerms:
        """Of p = 0 or 1 too, which rounding can give: numbers and not -infinity."""
        size = jax.nn.one_hot(value.size, self.num_sizes, dtype=value.again.dtype)
        log = lambda p: jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))[..., None]
        return NegativeBinomialTerms(size, size * log(value.again), size * log(1 - value.again))

    def natural_from_standard(self, standard: NegativeBinomialParameters) -> NegativeBinomialTerms:
        """(log w - log B(a, b), a - 1, b - 1)."""
        log_weight, a, b = standard
        checks.require_above("again", a, 0.0)
        checks.require_above("end", b, 0.0)
        return NegativeBinomialTerms(log_weight - _log_beta(a, b), a - 1, b - 1)

    def standard_from_natural(self, natural: NegativeBinomialTerms) -> NegativeBinomialParameters:
        """The inverse; weights sum to one."""
        a, b = natural.again + 1, natural.end + 1
        return NegativeBinomialParameters(log_softmax(natural.size + _log_beta(a, b), axis=-1), a, b)

    def advance(
        self, standard: NegativeBinomialParameters, step: NegativeBinomialTerms
    ) -> NegativeBinomialParameters:
        """The Betas no further than a step should go, the weights as far as that leads."""
        natural = add(self.natural_from_standard(standard), step)
        kept = lambda new, old: jnp.maximum(new, jnp.maximum(LEAST_KEPT * old, 1.01 * self.minimum))
        a, b = kept(natural.again + 1, standard.again), kept(natural.end + 1, standard.end)
        return self.standard_from_natural(NegativeBinomialTerms(natural.size, a - 1, b - 1))

    def standard_from_unconstrained(
        self, unconstrained: NegativeBinomialUnconstrained
    ) -> NegativeBinomialParameters:
        """The last log-weight is zero before all are normalised."""
        free, again, end = unconstrained
        full = jnp.concatenate([free, jnp.zeros_like(free, shape=(*free.shape[:-1], 1))], axis=-1)
        above = lambda x: constraints.above_from_unconstrained(x, self.minimum)
        return NegativeBinomialParameters(log_softmax(full, axis=-1), above(again), above(end))

    def unconstrained_from_standard(
        self, standard: NegativeBinomialParameters
    ) -> NegativeBinomialUnconstrained:
        """The inverse."""
        log_weight, again, end = standard
        checks.require_above("again", again, self.minimum)
        checks.require_above("end", end, self.minimum)
        free = lambda x: constraints.unconstrained_from_above(x, self.minimum)
        return NegativeBinomialUnconstrained(
            log_weight[..., :-1] - log_weight[..., -1:], free(again), free(end)
        )


def _log_beta(a: Float[Array, "*n"], b: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """log B(a, b); that of jax.scipy has single precision only."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)
