r"""Exact inference in a discrete chain (the hidden part of an HMM).

$$ q(k) \propto \exp\Big\{\sum_t n_t[k_t] + \sum_{t<T} E_t[k_t, k_{t+1}]\Big\} $$

The transition potentials E may be given once, shape (K, K), for all steps; then the statistic that pairs
with them is the **sum** of the pair marginals over time, and none of them is stored. Or one for each
step, shape (T-1, K, K).

Potentials of states that fit badly can lie thousands of nats below the others', so messages are scaled at
each step. As probabilities (`svae.chains.discrete_scaled`; in the `kernel` form each direction is one
kernel) they can be had from matrix products, as those between every second node can (`parallel`, K times
the work). None of these can hold transition potentials that lie too far apart (39 nats in single, 318 in
double precision); for those there is log space (`svae.chains.discrete_log`).
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae import checks
from svae.chains import discrete_log, discrete_parallel, discrete_scaled
from svae.chains.discrete_potentials import FORBIDDEN, Potentials, in_range
from svae.chains.forms import Form
from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily
from svae.kernels import ends, tiles
from svae.kernels.ends import FromBothEnds

LARGEST = 128  # number of states whose transitions a kernel can hold


class DiscreteChainTerms(NamedTuple):
    """Pairs with the one-hot vectors of k_t and the one-hot matrices of (k_t, k_{t+1})."""

    node: Float[Array, "time k"]
    transition: Float[Array, "*time_minus_1 k k"]


class DiscreteChain(ExponentialFamily):
    """The family of discrete chains; `length` marks padding, `form` picks the algorithm."""

    length: Length = None
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    num_states: int | None = eqx.field(default=None, static=True)  # only `sufficient_stats` needs it,
    shared: bool = eqx.field(default=True, static=True)  # and whether one transition is that of all steps

    def infer(self, natural: DiscreteChainTerms) -> tuple[Float[Array, ""], DiscreteChainTerms]:
        """Log-partition, marginals, and pair marginals (summed where the transition is shared)."""
        if natural.node.shape[0] == 0:
            return jnp.zeros((), natural.node.dtype), jax.tree.map(jnp.zeros_like, natural)
        potentials = self._potentials(natural)
        if self._as_probabilities(natural):
            quick = lambda potentials: self._scaled_marginals(potentials)[:3]
            results = lax.cond(in_range(potentials), quick, discrete_log.marginals, potentials)
        elif self.form == Form.SEQUENTIAL:
            results = discrete_log.marginals(potentials)
        else:
            algorithms = discrete_parallel.marginals, discrete_log.marginals
            results = lax.cond(in_range(potentials), *algorithms, potentials)
        log_partition, node, transition = results
        return log_partition, DiscreteChainTerms(zero_padding(self._valid(natural), node), transition)

    def linearize(
        self, natural: DiscreteChainTerms
    ) -> tuple[Array, DiscreteChainTerms, Callable[[DiscreteChainTerms], DiscreteChainTerms]]:
        """The same, and how the statistics answer changes: by messages that are there already."""
        if natural.node.shape[0] == 0 or not self._as_probabilities(natural):
            return super().linearize(natural)
        potentials = self._potentials(natural)
        quick = lambda potentials: self._scaled_marginals(potentials)

        def slow(potentials):
            results = discrete_log.marginals(potentials)
            unused = jax.eval_shape(quick, potentials)[3]
            return *results, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), unused)

        log_partition, node, transition, factors = lax.cond(in_range(potentials), quick, slow, potentials)
        stats = DiscreteChainTerms(zero_padding(self._valid(natural), node), transition)
        return log_partition, stats, jax.tree_util.Partial(_changed_stats, self, potentials, factors)

    def _as_probabilities(self, natural: DiscreteChainTerms) -> bool:
        """Whether `svae.chains.discrete_scaled` is for these potentials, where they are in its range."""
        return natural.transition.ndim == 2 and self.form != Form.PARALLEL

    def _loops(self, num_states: int) -> FromBothEnds:
        return ends.kernel if self.form == Form.KERNEL and num_states <= LARGEST else ends.plain

    def _widen(self, node: Array, transition: Array, value: float) -> tuple[Array, Array]:
        """As many states as kernels want, the further ones with the node potential `value`."""
        size = node.shape[1]
        if self._loops(size) is ends.plain:
            return node, transition
        more = (0, tiles.side(size) - size)
        return jnp.pad(node, [(0, 0), more], constant_values=value), jnp.pad(transition, [more, more])

    def _scaled_marginals(
        self, potentials: Potentials
    ) -> tuple[Float[Array, ""], Array, Array, discrete_scaled.Factors]:
        node, transition, linked = potentials
        size = node.shape[1]
        wide = Potentials(*self._widen(node, transition, FORBIDDEN), linked)
        log_partition, node, transition, factors = discrete_scaled.marginals(self._loops(size), wide)
        return log_partition, node[:, :size], transition[:size, :size], factors

    def _scaled_change(
        self, factors: discrete_scaled.Factors, node: Array, transition: Array
    ) -> tuple[Array, Array]:
        size = node.shape[1]
        wide = self._widen(node, transition, 0.0)
        node, transition = discrete_scaled.change(self._loops(size), factors, *wide)
        return node[:, :size], transition[:size, :size]

    def sample(self, key: PRNGKeyArray, natural: DiscreteChainTerms) -> Int[Array, "time"]:
        """A path of states."""
        noise = jax.random.gumbel(key, natural.node.shape, natural.node.dtype)
        return self._path(natural, noise, logsumexp)

    def most_likely_path(self, natural: DiscreteChainTerms) -> Int[Array, "time"]:
        """The path of highest probability (Viterbi)."""
        return self._path(natural, jnp.zeros_like(natural.node), jnp.max)

    def sufficient_stats(self, value: Int[Array, "time"]) -> DiscreteChainTerms:
        """One-hot vectors, and the transitions: their counts, or step by step where they are not shared."""
        if self.num_states is None:
            raise ValueError("DiscreteChain(num_states=...) is needed to make one-hot vectors")
        one_hot = jax.nn.one_hot(value, self.num_states)
        one_hot = zero_padding(valid_steps(value.shape[0], self.length), one_hot)
        pairs = one_hot[:-1, :, None] * one_hot[1:, None, :]
        return DiscreteChainTerms(one_hot, jnp.sum(pairs, axis=0) if self.shared else pairs)

    def _path(self, natural: DiscreteChainTerms, noise: Array, reduce: Callable) -> Int[Array, "time"]:
        if natural.node.shape[0] == 0:
            return jnp.zeros(0, jnp.int32)
        potentials = self._potentials(natural)
        in_turn = lambda potentials: discrete_log.path(potentials, noise, reduce)
        at_once = lambda potentials: discrete_parallel.path(
            potentials.node, potentials.edges(), noise, reduce
        )
        if self.form == Form.SEQUENTIAL:
            path = in_turn(potentials)
        else:
            path = lax.cond(in_range(potentials), at_once, in_turn, potentials)
        return zero_padding(self._valid(natural), path)

    def _valid(self, natural: DiscreteChainTerms):
        return valid_steps(natural.node.shape[0], self.length)

    def _potentials(self, natural: DiscreteChainTerms) -> Potentials:
        checks.require_axes("node", natural.node, 2)
        time, size = natural.node.shape
        checks.require_shape("transition", natural.transition, (size, size))
        if natural.transition.ndim > 2:
            checks.require_axes("transition", natural.transition, 3)
            checks.require_shape("transition", natural.transition, (time - 1, size, size))
        valid = self._valid(natural)
        node, transition = (jnp.maximum(potential, FORBIDDEN) for potential in natural)
        alone = jnp.full_like(node, FORBIDDEN).at[:, 0].set(0)  # one certain state: log-partition zero
        return Potentials(choose(valid, node, alone), transition, valid[1:])


def _changed_stats(
    family: DiscreteChain,
    potentials: Potentials,
    factors: discrete_scaled.Factors,
    change: DiscreteChainTerms,
) -> DiscreteChainTerms:
    valid = family._valid(change)
    node, transition = zero_padding(valid, change.node), change.transition

    def slow() -> tuple[Array, Array]:
        def stats(node: Array, transition: Array) -> tuple[Array, Array]:
            moved = potentials._replace(node=node, transition=transition)
            return discrete_log.marginals(moved)[1:]

        return jax.jvp(stats, (potentials.node, potentials.transition), (node, transition))[1]

    node, transition = lax.cond(
        in_range(potentials), lambda: family._scaled_change(factors, node, transition), slow
    )
    return DiscreteChainTerms(zero_padding(valid, node), transition)
