r"""What an exponential family is here, and what follows for every one of them.

$$ p(x; \eta) = \exp\{\langle \eta, t(x)\rangle - \log Z(\eta)\} $$

Each family names its sufficient statistics $t(x)$ once, as the fields of a record (a `NamedTuple` of
arrays called its *terms*). The same record type holds a **natural parameter**, where a field is the
coefficient of that statistic, and **expected statistics**, where it is the statistic's expectation. The
two live in dual spaces and `inner` pairs them; symmetric matrices are stored in full, with the Frobenius
inner product.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

LEAST_KEPT = 0.1  # of anything positive, in one step of `advance`

Terms = Any  # a record of arrays, one for each sufficient statistic


def add(a: Terms, b: Terms, scale: Any = 1.0) -> Terms:
    """`a + scale * b`, leaf by leaf."""
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def zeros_for_none(like: Terms, cotangents: Terms) -> Terms:
    """Cotangents in full: what nothing depends on comes as None from equinox's custom rules."""
    fill = lambda x, bar: jnp.zeros_like(x) if bar is None else bar
    return jax.tree.map(fill, like, cotangents, is_leaf=lambda x: x is None)


def inner(a: Terms, b: Terms) -> Float[Array, ""]:
    """The pairing of a natural parameter with expected statistics, summed over everything."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.asarray(sum((jnp.sum(x * y) for x, y in pairs), 0.0))


class ExponentialFamily(eqx.Module):
    """A distribution given by natural parameters, with tractable expectations.

    Anything that offers these three can be a block of a structured mean-field posterior.
    """

    @abstractmethod
    def infer(self, natural: Terms) -> tuple[Array, Terms]:
        """Log-partition (over leading axes) and expected statistics, from one computation."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, natural: Terms) -> Any:
        """One draw; reparameterised where the variable is continuous."""

    @abstractmethod
    def sufficient_stats(self, value: Any) -> Terms:
        """t(x) of one value."""

    def linearize(self, natural: Terms) -> tuple[Array, Terms, Callable[[Terms], Terms]]:
        """`infer`, and the symmetric linear map d natural -> d stats.

        The map is a pytree that holds the factors; applying it again costs no factorisation. Families that
        know a shorter way than automatic differentiation say so here.
        """

        def stats_first(natural):
            log_partition, stats = self.infer(natural)
            return stats, log_partition

        stats, jacobian, log_partition = jax.linearize(stats_first, natural, has_aux=True)
        return log_partition, stats, jacobian

    def log_partition(self, natural: Terms) -> Array:
        """log Z of the natural parameter."""
        return self.infer(natural)[0]

    def expected_stats(self, natural: Terms) -> Terms:
        """E[t(x)], which is the gradient of `log_partition`."""
        return self.infer(natural)[1]

    def kl(self, natural: Terms, other: Terms) -> Float[Array, ""]:
        """KL(p(natural) || p(other)), summed over leading axes."""
        log_partition, stats = self.infer(natural)
        difference = jnp.sum(self.log_partition(other)) - jnp.sum(log_partition)
        return inner(add(natural, other, -1.0), stats) + difference


class ParameterFamily(ExponentialFamily):
    """A family that can also serve as the posterior of a model's parameters.

    *Standard* parameters are the ones people read (a mean, a covariance). *Unconstrained* ones are what
    an optimiser moves: packed without redundancy, every real value valid.
    """

    @abstractmethod
    def infer_standard(self, standard: Terms) -> tuple[Array, Terms]:
        """`infer`, from standard parameters: free of the cancellation that natural ones can bring."""

    @abstractmethod
    def natural_from_standard(self, standard: Terms) -> Terms:
        """Natural from standard parameters; errors name the offending parameter."""

    @abstractmethod
    def standard_from_natural(self, natural: Terms) -> Terms:
        """Standard from natural parameters."""

    @abstractmethod
    def standard_from_unconstrained(self, unconstrained: Terms) -> Terms:
        """Standard parameters of any real-valued unconstrained record."""

    @abstractmethod
    def unconstrained_from_standard(self, standard: Terms) -> Terms:
        """The inverse of `standard_from_unconstrained`."""

    def advance(self, standard: Terms, step: Terms) -> Terms:
        """Standard parameters after `step` was added to the natural ones.

        Families with a bounded domain go as far as a single step should: nothing positive loses more
        than nine tenths of itself.
        """
        return self.standard_from_natural(add(self.natural_from_standard(standard), step))

    def infer(self, natural: Terms) -> tuple[Array, Terms]:
        """Log-partition and expected statistics."""
        return self.infer_standard(self.standard_from_natural(natural))

    def natural_from_unconstrained(self, unconstrained: Terms) -> Terms:
        """Natural parameters of any real-valued unconstrained record."""
        return self.natural_from_standard(self.standard_from_unconstrained(unconstrained))

    def unconstrained_from_natural(self, natural: Terms) -> Terms:
        """The inverse of `natural_from_unconstrained`."""
        return self.unconstrained_from_standard(self.standard_from_natural(natural))


class Product(ParameterFamily):
    """Independent families side by side: a record of families is itself a family."""

    factors: Any

    def _map(self, method: Callable, *records: Terms) -> Any:
        is_family = lambda x: isinstance(x, ParameterFamily)
        return jax.tree.map(method, self.factors, *records, is_leaf=is_family)

    def infer(self, natural: Terms) -> tuple[Array, Terms]:
        """The log-partitions' sum, over factors and their leading axes, and every factor's statistics."""
        return _total(self._map(lambda family, n: _Pair(*family.infer(n)), natural))

    def infer_standard(self, standard: Terms) -> tuple[Array, Terms]:
        """The same, from standard parameters."""
        return _total(self._map(lambda family, s: _Pair(*family.infer_standard(s)), standard))

    def sample(self, key: PRNGKeyArray, natural: Terms) -> Any:
        """Independent draws."""
        is_family = lambda x: isinstance(x, ParameterFamily)
        leaves, structure = jax.tree.flatten(self.factors, is_leaf=is_family)
        keys = jax.tree.unflatten(structure, list(jax.random.split(key, max(len(leaves), 1))[: len(leaves)]))
        return self._map(lambda family, k, n: family.sample(k, n), keys, natural)

    def sufficient_stats(self, value: Any) -> Terms:
        """t of each factor's value."""
        return self._map(lambda family, v: family.sufficient_stats(v), value)

    def natural_from_standard(self, standard: Terms) -> Terms:
        """Factor by factor."""
        return self._map(lambda family, s: family.natural_from_standard(s), standard)

    def standard_from_natural(self, natural: Terms) -> Terms:
        """Factor by factor."""
        return self._map(lambda family, n: family.standard_from_natural(n), natural)

    def advance(self, standard: Terms, step: Terms) -> Terms:
        """Factor by factor."""
        return self._map(lambda family, s, d: family.advance(s, d), standard, step)

    def standard_from_unconstrained(self, unconstrained: Terms) -> Terms:
        """Factor by factor."""
        return self._map(lambda family, u: family.standard_from_unconstrained(u), unconstrained)

    def unconstrained_from_standard(self, standard: Terms) -> Terms:
        """Factor by factor."""
        return self._map(lambda family, s: family.unconstrained_from_standard(s), standard)


class _Pair:
    """Two values that `jax.tree` takes for one leaf."""

    def __init__(self, first, second):
        self.first, self.second = first, second


def _total(pairs: Any) -> tuple[Array, Terms]:
    """The sum of all log-partitions, and the statistics, from a record of such pairs."""
    is_pair = lambda x: isinstance(x, _Pair)
    total = sum((jnp.sum(pair.first) for pair in jax.tree.leaves(pairs, is_leaf=is_pair)), 0.0)
    return jnp.asarray(total), jax.tree.map(lambda pair: pair.second, pairs, is_leaf=is_pair)
