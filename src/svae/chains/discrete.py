r"""Exact inference in a discrete chain (the hidden part of an HMM).

$$ q(k) \propto \exp\Big\{\sum_t n_t[k_t] + \sum_{t<T} E_t[k_t, k_{t+1}]\Big\} $$

The transition potentials E may be given once, shape (K, K), for all steps; then the statistic that pairs
with them is the **sum** of the pair marginals over time, and none of them is stored. Or one for each
step, shape (T-1, K, K).

Potentials of states that fit badly can lie thousands of nats below the others', so messages are held in
log space; they are renormalised at each step, so nothing grows with T.

As for the Gaussian chain there are two orders of elimination: node after node (`sequential`), or every
second node at once (`parallel`: K times the work, all of it in matrix products). Those cannot hold
transition potentials that lie too far apart (39 nats in single, 318 in double precision); where they do,
`parallel` falls back to `sequential`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp, softmax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae import checks
from svae.chains.odd_even import interleave, split
from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily
from svae.linalg import matmul, transpose

FORBIDDEN = -1e9  # minus infinity is read as this: a log-probability no state recovers from


class DiscreteChainTerms(NamedTuple):
    """Pairs with the one-hot vectors of k_t and the one-hot matrices of (k_t, k_{t+1})."""

    node: Float[Array, "time k"]
    transition: Float[Array, "*time_minus_1 k k"]


class Potentials(NamedTuple):
    """Node potentials, transition potentials (shared or not), and which transitions there are."""

    node: Float[Array, "time k"]
    transition: Float[Array, "*time_minus_1 k k"]
    linked: Bool[Array, "time_minus_1"]

    @property
    def shared(self) -> bool:
        """Whether all steps have the same transition potentials."""
        return self.transition.ndim == 2

    def edges(self) -> Float[Array, "time_minus_1 k k"]:
        """Transition potentials step by step, zero where there is no link."""
        size = self.node.shape[-1]
        edges = jnp.broadcast_to(self.transition, (self.linked.shape[0], size, size))
        return zero_padding(self.linked, edges)


class DiscreteChain(ExponentialFamily):
    """The family of discrete chains; `length` marks padding, `parallel` picks the algorithm."""

    length: Length = None
    parallel: bool = eqx.field(default=False, static=True)
    num_states: int | None = eqx.field(default=None, static=True)  # only `sufficient_stats` needs it

    def infer(self, natural: DiscreteChainTerms) -> tuple[Float[Array, ""], DiscreteChainTerms]:
        """Log-partition, marginals, and pair marginals (summed where the transition is shared)."""
        if natural.node.shape[0] == 0:
            return jnp.zeros((), natural.node.dtype), jax.tree.map(jnp.zeros_like, natural)
        potentials = self._potentials(natural)
        if self.parallel:
            results = lax.cond(_in_range(potentials), _parallel_marginals, _sequential_marginals, potentials)
        else:
            results = _sequential_marginals(potentials)
        log_partition, node, transition = results
        return log_partition, DiscreteChainTerms(zero_padding(self._valid(natural), node), transition)

    def sample(self, key: PRNGKeyArray, natural: DiscreteChainTerms) -> Int[Array, "time"]:
        """A path of states."""
        noise = jax.random.gumbel(key, natural.node.shape, natural.node.dtype)
        return self._path(natural, noise, logsumexp)

    def most_likely_path(self, natural: DiscreteChainTerms) -> Int[Array, "time"]:
        """The path of highest probability (Viterbi)."""
        return self._path(natural, jnp.zeros_like(natural.node), jnp.max)

    def sufficient_stats(self, value: Int[Array, "time"]) -> DiscreteChainTerms:
        """One-hot vectors, and the counts of each transition."""
        if self.num_states is None:
            raise ValueError("DiscreteChain(num_states=...) is needed to make one-hot vectors")
        one_hot = jax.nn.one_hot(value, self.num_states)
        one_hot = zero_padding(valid_steps(value.shape[0], self.length), one_hot)
        return DiscreteChainTerms(one_hot, jnp.einsum("ti,tj->ij", one_hot[:-1], one_hot[1:]))

    def _path(self, natural: DiscreteChainTerms, noise: Array, reduce: Callable) -> Int[Array, "time"]:
        if natural.node.shape[0] == 0:
            return jnp.zeros(0, jnp.int32)
        potentials = self._potentials(natural)
        in_turn = lambda potentials: _sequential_path(potentials, noise, reduce)
        at_once = lambda potentials: _parallel_path(potentials.node, potentials.edges(), noise, reduce)
        if self.parallel:
            path = lax.cond(_in_range(potentials), at_once, in_turn, potentials)
        else:
            path = in_turn(potentials)
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


# Sequential: one node after the other. `steps` scans either over shared or over own transitions.


def _steps(potentials: Potentials) -> tuple[Callable, tuple]:
    """Scanned inputs (linked, own transition) and how to get a step's edge from them."""
    _, transition, linked = potentials
    if potentials.shared:
        return (lambda linked, _: jnp.where(linked, transition, 0)), (linked, None)
    return (lambda linked, own: jnp.where(linked, own, 0)), (linked, transition)


def _forward(potentials: Potentials, reduce: Callable) -> tuple[Float[Array, ""], Float[Array, "time k"]]:
    """Log-normaliser and normalised forward messages."""
    edge_of, scanned = _steps(potentials)

    def normalise(message):
        level = reduce(message, axis=-1)
        return message - level, level

    def step(message, x):
        node, own = x
        message, level = normalise(node + reduce(message[:, None] + edge_of(*own), axis=0))
        return message, (message, level)

    first, level = normalise(potentials.node[0])
    _, (rest, levels) = lax.scan(jax.checkpoint(step), first, (potentials.node[1:], scanned))
    return level + jnp.sum(levels), jnp.concatenate([first[None], rest])


def _sequential_marginals(potentials: Potentials) -> tuple[Float[Array, ""], Array, Array]:
    edge_of, scanned = _steps(potentials)
    log_partition, filtered = _forward(potentials, logsumexp)

    def step(carry, x):
        after, total = carry
        filtered, own = x
        backward = softmax(filtered[:, None] + edge_of(*own), axis=0)  # p(k_t | k_{t+1}, the past)
        pair = backward * after[None, :]
        marginal = jnp.sum(pair, axis=1)
        pair = jnp.where(own[0], pair, 0)
        if potentials.shared:
            return (marginal, total + pair), (marginal, ())
        return (marginal, total), (marginal, pair)

    last = softmax(filtered[-1])
    start: Any = last, jnp.zeros_like(potentials.transition) if potentials.shared else ()
    (_, total), (marginals, pairs) = lax.scan(
        jax.checkpoint(step), start, (filtered[:-1], scanned), reverse=True
    )
    transition: Array = total if potentials.shared else pairs
    return log_partition, jnp.concatenate([marginals, last[None]]), transition


def _sequential_path(potentials: Potentials, noise: Array, reduce: Callable) -> Int[Array, "time"]:
    """Backwards, each state the best (after noise) given its successor.

    With `logsumexp` and Gumbel noise that is a draw, with `max` and none the most likely path.
    """
    edge_of, scanned = _steps(potentials)
    messages = _forward(potentials, reduce)[1] + noise

    def step(after, x):
        message, own = x
        state = jnp.argmax(message + edge_of(*own)[:, after])
        return state, state

    last = jnp.argmax(messages[-1])
    _, path = lax.scan(step, last, (messages[:-1], scanned), reverse=True)
    return jnp.concatenate([path, last[None]])


# Parallel: every second node at once. Two nodes are the base case, and an even number of nodes gets one
# more at the end that stands alone.


def _with_odd_count(node: Array, edge: Array) -> tuple[Array, Array]:
    alone = jnp.full_like(node[:1], FORBIDDEN).at[:, 0].set(0)
    return jnp.concatenate([node, alone]), jnp.concatenate([edge, jnp.zeros_like(edge[:1])])


def _into_and_out(node: Array, edge: Array) -> tuple[Array, Array]:
    """Scores (left state, odd state) and (odd state, right state)."""
    (_, odd), (left, right) = split(node), split(edge)
    return left + odd[:, None, :], right


class _Scaled(NamedTuple):
    """exp(scores - level): the factors of a log-space matrix product done as an ordinary one.

    Levels are the rows' (columns') maxima, so emissions of any size cancel (see `_in_range`).
    """

    into: Float[Array, "odd k k"]
    out: Float[Array, "odd k k"]
    total: Float[Array, "odd k k"]  # into @ out
    level: Float[Array, "odd k k"]


def _scaled(node: Array, edge: Array) -> _Scaled:
    into, out = _into_and_out(node, edge)
    row = lax.stop_gradient(jnp.max(into, axis=2, keepdims=True))
    column = lax.stop_gradient(jnp.max(out, axis=1, keepdims=True))
    into, out = jnp.exp(into - row), jnp.exp(out - column)
    total = jnp.maximum(matmul(into, out), math.exp(-_largest_spread(into.dtype)))
    return _Scaled(into, out, total, row + column)


def _largest_spread(dtype) -> float:
    """Nats that a scaled product can span, with room to divide by its square, as derivatives do."""
    return -0.45 * math.log(jnp.finfo(dtype).tiny)


def _in_range(potentials: Potentials) -> Bool[Array, ""]:
    """Whether scaled products are exact: no transition is forbidden, or all but.

    Take the odd state that the left neighbour likes best. The right neighbour may like others better, but
    only for the sake of the first transition on the way to it: by the spread of a column at most.
    """
    transition = potentials.transition if potentials.shared else potentials.edges()
    spread = jnp.max(transition, axis=-2) - jnp.min(transition, axis=-2)
    return jnp.all(spread < _largest_spread(transition.dtype))


def _join_sum(node: Array, edge: Array) -> Float[Array, "odd k k"]:
    """Potentials between even neighbours, the odd node between them summed out."""
    scaled = _scaled(node, edge)
    return jnp.log(scaled.total) + scaled.level


def _join_max(node: Array, edge: Array) -> Float[Array, "odd k k"]:
    """The same with the best odd state instead of the sum."""
    into, out = _into_and_out(node, edge)
    states = jnp.arange(into.shape[-1])
    step = lambda best, k: (jnp.maximum(best, into[:, :, k, None] + out[:, k, None, :]), None)
    return lax.scan(step, jnp.full_like(out, -jnp.inf), states)[0]


def _parallel_marginals(potentials: Potentials) -> tuple[Float[Array, ""], Array, Array]:
    log_partition, node, pair = _odd_even_marginals(potentials.node, potentials.edges())
    pair = zero_padding(potentials.linked, pair)
    return log_partition, node, jnp.sum(pair, axis=0) if potentials.shared else pair


def _odd_even_marginals(node: Array, edge: Array) -> tuple[Float[Array, ""], Array, Array]:
    time = node.shape[0]
    if time == 1:
        return logsumexp(node), softmax(node, axis=-1), edge
    if time == 2:
        joint = node[0][:, None] + edge[0] + node[1][None, :]
        log_partition = logsumexp(joint)
        pair = jnp.exp(joint - log_partition)
        return log_partition, jnp.stack([jnp.sum(pair, axis=1), jnp.sum(pair, axis=0)]), pair[None]
    if time % 2 == 0:
        log_partition, marginal, pair = _odd_even_marginals(*_with_odd_count(node, edge))
        return log_partition, marginal[:-1], pair[:-1]

    into, out, total, level = _scaled(node, edge)
    joined = jnp.log(total) + level
    highest = jnp.max(joined, axis=(1, 2), keepdims=True)
    log_partition, marginal, pair = _odd_even_marginals(node[::2], joined - highest)
    # p(left, odd) = sum over right of p(left, right) into[left, odd] out[odd, right] / total[left, right]
    weight = pair / total
    left, right = into * matmul(weight, transpose(out)), out * matmul(transpose(into), weight)
    marginal = interleave(marginal, jnp.sum(left, axis=1))
    return log_partition + jnp.sum(highest), marginal, interleave(left, right)


def _parallel_path(node: Array, edge: Array, noise: Array, reduce: Callable) -> Int[Array, "time"]:
    time = node.shape[0]
    if time == 1:
        return jnp.argmax(node + noise, axis=-1)
    if time == 2:
        first = jnp.argmax(node[0] + reduce(edge[0] + node[1][None, :], axis=1) + noise[0])
        return jnp.stack([first, jnp.argmax(edge[0][first] + node[1] + noise[1])])
    if time % 2 == 0:
        noise = jnp.pad(noise, [(0, 1), (0, 0)])
        return _parallel_path(*_with_odd_count(node, edge), noise, reduce)[:-1]
    joined = (_join_sum if reduce is logsumexp else _join_max)(node, edge)
    joined = joined - jnp.max(joined, axis=(1, 2), keepdims=True)
    even = _parallel_path(node[::2], joined, noise[::2], reduce)
    into, out = _into_and_out(node, edge)
    each = jnp.arange(time // 2)
    scores = into[each, even[:-1], :] + out[each, :, even[1:]]
    return interleave(even, jnp.argmax(scores + noise[1::2], axis=-1))
