r"""A family whose entropy counts several times.

$$ A_c(\eta) = c\, A(\eta / c), \qquad \nabla A_c(\eta) = \nabla A(\eta / c), \qquad
   \langle\eta, \mu\rangle - A_c(\eta) = -c\, H. $$

As a block of a structured posterior it makes every nat dearer by which that block differs from its prior, if
the prior's energy counts as often: the bound loses $(c - 1)\,\mathrm{KL}(q \,\|\, p)$, and is one still.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from svae.expfam.family import ExponentialFamily, Terms


class Priced(ExponentialFamily):
    """The same distributions, with natural parameters `price` times as large."""

    family: Any  # an ExponentialFamily; of chains also `most_likely_path`
    price: float = eqx.field(static=True)

    def infer(self, natural: Terms) -> tuple[Array, Terms]:
        """Log-partition and expected statistics."""
        log_partition, stats = self.family.infer(self._own(natural))
        return self.price * log_partition, stats

    def linearize(self, natural: Terms) -> tuple[Array, Terms, Callable[[Terms], Terms]]:
        """The same, and how the statistics answer changes."""
        log_partition, stats, jacobian = self.family.linearize(self._own(natural))
        return self.price * log_partition, stats, jax.tree_util.Partial(_answer, self, jacobian)

    def sample(self, key: PRNGKeyArray, natural: Terms) -> Any:
        """One draw."""
        return self.family.sample(key, self._own(natural))

    def most_likely_path(self, natural: Terms) -> Any:
        """That of a chain."""
        return self.family.most_likely_path(self._own(natural))

    def sufficient_stats(self, value: Any) -> Terms:
        """Those of the family."""
        return self.family.sufficient_stats(value)

    def _own(self, natural: Terms) -> Terms:
        return jax.tree.map(lambda x: x / self.price, natural)


def _answer(family: Priced, jacobian: Callable[[Terms], Terms], change: Terms) -> Terms:
    return jacobian(family._own(change))


def priced(family: ExponentialFamily, price: float) -> ExponentialFamily:
    """The family, at its price."""
    return family if price == 1 else Priced(family, price)
