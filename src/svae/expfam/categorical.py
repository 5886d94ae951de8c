r"""Categorical: $t(k)$ is the one-hot vector, natural parameters are log-probabilities up to a constant."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae import checks
from svae.expfam.family import ParameterFamily


class CategoricalTerms(NamedTuple):
    """Pairs with the one-hot vector."""

    one_hot: Float[Array, "*batch k"]


class CategoricalParameters(NamedTuple):
    """The standard parameters."""

    probabilities: Float[Array, "*batch k"]


class CategoricalUnconstrained(NamedTuple):
    """Logits relative to the last state's, which is left out."""

    logits: Float[Array, "*batch k_minus_1"]


class Categorical(ParameterFamily):
    """The categorical family."""

    num_states: int | None = eqx.field(default=None, static=True)  # only `sufficient_stats` needs it

    def infer(self, natural: CategoricalTerms) -> tuple[Float[Array, "*batch"], CategoricalTerms]:
        """log Z = logsumexp; the expected one-hot vector is the softmax."""
        (logits,) = natural
        return jax.nn.logsumexp(logits, axis=-1), CategoricalTerms(jax.nn.softmax(logits, axis=-1))

    def infer_standard(
        self, standard: CategoricalParameters
    ) -> tuple[Float[Array, "*batch"], CategoricalTerms]:
        """From probabilities."""
        return self.infer(self.natural_from_standard(standard))

    def sample(self, key: PRNGKeyArray, natural: CategoricalTerms) -> Int[Array, "*batch"]:
        """State numbers."""
        return jax.random.categorical(key, natural.one_hot, axis=-1)

    def sufficient_stats(self, value: Int[Array, "*batch"]) -> CategoricalTerms:
        """One-hot vectors of state numbers."""
        if self.num_states is None:
            raise ValueError("Categorical(num_states=...) is needed to make one-hot vectors")
        return CategoricalTerms(jax.nn.one_hot(value, self.num_states))

    def natural_from_standard(self, standard: CategoricalParameters) -> CategoricalTerms:
        """Log-probabilities."""
        (probabilities,) = standard
        checks.require_above("probabilities", probabilities, 0.0)
        checks.require_sums_to_one("probabilities", probabilities)
        return CategoricalTerms(jnp.log(probabilities))

    def standard_from_natural(self, natural: CategoricalTerms) -> CategoricalParameters:
        """Probabilities."""
        return CategoricalParameters(jax.nn.softmax(natural.one_hot, axis=-1))

    def standard_from_unconstrained(self, unconstrained: CategoricalUnconstrained) -> CategoricalParameters:
        """Softmax with a last logit of zero."""
        (logits,) = unconstrained
        full = jnp.concatenate([logits, jnp.zeros_like(logits, shape=(*logits.shape[:-1], 1))], axis=-1)
        return CategoricalParameters(jax.nn.softmax(full, axis=-1))

    def unconstrained_from_standard(self, standard: CategoricalParameters) -> CategoricalUnconstrained:
        """Logits relative to the last state's."""
        logits = jnp.log(standard.probabilities)
        return CategoricalUnconstrained(logits[..., :-1] - logits[..., -1:])

    def harmless(self, natural: CategoricalTerms) -> CategoricalTerms:
        """Uniform distributions in the shape of `natural`."""
        return CategoricalTerms(jnp.zeros_like(natural.one_hot))
