"""A discrete chain by odd-even reduction: K times the work, all of it in matrix products.

Two nodes are the base case, and an even number of nodes gets one more at the end that stands alone.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp, softmax
from jaxtyping import Array, Float, Int

from svae.chains.discrete_potentials import FORBIDDEN, Potentials, largest_spread
from svae.chains.odd_even import interleave, split
from svae.chains.padding import zero_padding
from svae.linalg import matmul, transpose


def _with_odd_count(node: Array, edge: Array) -> tuple[Array, Array]:
    alone = jnp.full_like(node[:1], FORBIDDEN).at[:, 0].set(0)
    return jnp.concatenate([node, alone]), jnp.concatenate([edge, jnp.zeros_like(edge[:1])])


def _into_and_out(node: Array, edge: Array) -> tuple[Array, Array]:
    """Scores (left state, odd state) and (odd state, right state)."""
    (_, odd), (left, right) = split(node), split(edge)
    return left + odd[:, None, :], right


class _Scaled(NamedTuple):
    """exp(scores - level): the factors of a log-space matrix product done as an ordinary one.

    Levels are the rows' (columns') maxima, so emissions of any size cancel (see `in_range`).
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
    total = jnp.maximum(matmul(into, out), math.exp(-largest_spread(into.dtype)))
    return _Scaled(into, out, total, row + column)


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


def marginals(potentials: Potentials) -> tuple[Float[Array, ""], Array, Array]:
    """Log-partition, marginals, and pair marginals (summed where the transition is shared)."""
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


def path(node: Array, edge: Array, noise: Array, reduce: Callable) -> Int[Array, "time"]:
    """As in `svae.chains.discrete_log`, every second state given its neighbours."""
    time = node.shape[0]
    if time == 1:
        return jnp.argmax(node + noise, axis=-1)
    if time == 2:
        first = jnp.argmax(node[0] + reduce(edge[0] + node[1][None, :], axis=1) + noise[0])
        return jnp.stack([first, jnp.argmax(edge[0][first] + node[1] + noise[1])])
    if time % 2 == 0:
        noise = jnp.pad(noise, [(0, 1), (0, 0)])
        return path(*_with_odd_count(node, edge), noise, reduce)[:-1]
    joined = (_join_sum if reduce is logsumexp else _join_max)(node, edge)
    joined = joined - jnp.max(joined, axis=(1, 2), keepdims=True)
    even = path(node[::2], joined, noise[::2], reduce)
    into, out = _into_and_out(node, edge)
    each = jnp.arange(time // 2)
    scores = into[each, even[:-1], :] + out[each, :, even[1:]]
    return interleave(even, jnp.argmax(scores + noise[1::2], axis=-1))
