"""Independent variables at every step: a chain without links."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.categorical import Categorical
from svae.expfam.family import ExponentialFamily, Terms
from svae.expfam.gaussian import Gaussian


class IndependentSteps(ExponentialFamily):
    """`family`, once for each step; `length` marks padding."""

    family: Gaussian | Categorical
    length: Length = None

    def infer(self, natural: Terms) -> tuple[Float[Array, ""], Terms]:
        """Log-partition, summed over the steps, and the statistics of each."""
        if self.length is None:
            log_partition, stats = self.family.infer(natural)
            return jnp.sum(log_partition), stats
        valid = self._valid(natural)
        log_partition, stats = self.family.infer(self._filled(natural, valid))
        return jnp.sum(zero_padding(valid, log_partition)), zero_padding(valid, stats)

    def sample(self, key: PRNGKeyArray, natural: Terms) -> Any:
        """A draw for each step, zero in the padding."""
        valid = self._valid(natural)
        return zero_padding(valid, self.family.sample(key, self._filled(natural, valid)))

    def sufficient_stats(self, value: Any) -> Terms:
        """t(x) of each step."""
        stats = self.family.sufficient_stats(value)
        return zero_padding(self._valid(stats), stats)

    def _valid(self, terms: Terms):
        return valid_steps(jax.tree.leaves(terms)[0].shape[0], self.length)

    def _filled(self, natural: Terms, valid) -> Terms:
        """Something harmless in the padding, so that no NaN arises there (nor in any gradient)."""
        harmless = self.family.harmless(natural)
        return jax.tree.map(lambda inside, outside: choose(valid, inside, outside), natural, harmless)
