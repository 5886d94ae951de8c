r"""A discrete chain with messages as probabilities: a step is one product of a vector and a matrix.

With $b_t = e^{n_t}$ and $P = e^E$ (each up to a factor), messages come from the left and from the right,

$$ p_{t+1} = a_t P, \quad a_t \propto b_t\, p_t \qquad\qquad
   \beta_t = P w_{t+1}, \quad w_t \propto b_t\, \beta_t, $$

and together make marginals $\gamma_t \propto a_t \beta_t$ and pairs $\xi_t \propto a_t\, P\, w_{t+1}^\top$.
Both are the same recursion, one with P and one, backwards, with its transpose.

A change of the potentials changes the messages' logarithms by

$$ \dot a_{t+1} = \dot n_{t+1} + \big((a_t\, \dot a_t) P + a_t (P\, \dot E)\big) / p_{t+1}, $$

likewise from the right: again one recursion, linear now, in both directions. This is exact within the
range of `svae.chains.discrete_potentials.in_range`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae.chains.discrete_potentials import Potentials
from svae.chains.padding import zero_padding
from svae.kernels.scan import Loop, Read, Scan
from svae.linalg import PRECISION, matmul, transpose


class Messages(NamedTuple):
    """What comes from one side: `before` and `after` a step's own potential; `after` sums to one."""

    before: Float[Array, "time k"]
    after: Float[Array, "time k"]


class Factors(NamedTuple):
    """What `change` is made of."""

    matrix: Float[Array, "k k"]
    linked: Bool[Array, "time_minus_1"]
    left: Messages
    right: Messages
    node: Float[Array, "time k"]
    transition: Float[Array, "k k"]


def _both_ways(left: Array, right: Array) -> Array:
    """In the order in which each direction meets them."""
    return jnp.stack([left, jnp.flip(right, axis=0)])


def _from_both(stacked: Array) -> tuple[Array, Array]:
    return stacked[0], jnp.flip(stacked[1], axis=0)


def marginals(
    scan: Scan, potentials: Potentials
) -> tuple[Float[Array, ""], Float[Array, "time k"], Float[Array, "k k"], Factors]:
    """Log-partition, marginals, pair marginals summed over time, and what `change` needs."""
    node, transition, linked = potentials
    # A column's largest entry is a factor of its state's own potential
    column = jnp.max(transition, axis=0, keepdims=True)
    matrix = jnp.exp(transition - column)
    node = node.at[1:].add(jnp.where(linked[:, None], column, 0))
    level = jnp.max(node, axis=1, keepdims=True)
    own = jnp.exp(node - level)

    pair = jnp.stack([matrix, matrix.T])
    before, after, scale = jax.vmap(partial(_filter, scan))(
        _both_ways(own, own), pair, _both_ways(linked, linked)
    )
    log_partition = jnp.sum(level) + jnp.sum(jnp.log(scale[0]))
    befores, afters = _from_both(before), _from_both(after)
    left, right = Messages(befores[0], afters[0]), Messages(befores[1], afters[1])

    product = left.after * right.before
    marginal = product / jnp.sum(product, axis=1, keepdims=True)
    start, end = _pair_messages(left, right, linked)
    pairs = matrix * jnp.matmul(transpose(start), end, precision=PRECISION)
    return log_partition, marginal, pairs, Factors(matrix, linked, left, right, marginal, pairs)


def _pair_messages(left: Messages, right: Messages, linked: Array) -> tuple[Array, Array]:
    """Vectors s_t, e_t with pairs xi_t[i, j] = s_t[i] P[i, j] e_t[j]; zero where there is no link."""
    end = right.after[1:]
    total = jnp.sum(left.before[1:] * end, axis=1, keepdims=True)
    return zero_padding(linked, left.after[:-1] / total), end


def change(
    scan: Scan, factors: Factors, node: Float[Array, "time k"], transition: Float[Array, "k k"]
) -> tuple[Float[Array, "time k"], Float[Array, "k k"]]:
    """How the marginals and the summed pairs answer a change of the potentials."""
    matrix, linked, left, right, marginal, pairs = factors
    moved = matrix * transition
    from_left = zero_padding(linked, matmul(left.after[:-1], moved) / left.before[1:])
    from_right = zero_padding(linked, matmul(right.after[1:], moved.T) / right.before[:-1])
    source = _both_ways(node.at[1:].add(from_left), node.at[:-1].add(from_right))
    weight = _both_ways(left.after, right.after)
    gain = _both_ways(
        zero_padding(_after(linked), 1 / left.before), zero_padding(_before(linked), 1 / right.before)
    )
    log_left, log_right = _from_both(
        jax.vmap(partial(_respond, scan))(source, weight, gain, jnp.stack([matrix, matrix.T]))
    )

    both = log_left + log_right - node
    marginal_change = marginal * (both - _mean(marginal, both))
    # d xi_t = xi_t (d log a_t[i] + dE[i, j] + d log w_{t+1}[j] - their mean)
    start, end = _pair_messages(left, right, linked)
    level = _mean(marginal[:-1], log_left[:-1]) + _mean(marginal[1:], log_right[1:])
    level = level + _mean(start, matmul(end, moved.T))
    starts = jnp.concatenate([start * (log_left[:-1] - level), start])
    ends = jnp.concatenate([end, end * log_right[1:]])
    pairs_change = pairs * transition + matrix * jnp.matmul(transpose(starts), ends, precision=PRECISION)
    return marginal_change, pairs_change


def _filter(
    scan: Scan, own: Float[Array, "time k"], matrix: Float[Array, "k k"], linked: Bool[Array, "time_minus_1"]
) -> tuple[Float[Array, "time k"], Float[Array, "time k"], Float[Array, "time"]]:
    """p_{t+1} = a_t P, or one where there is no link; a_t = b_t p_t / c_t; returns p, a and c."""
    begin = lambda la, matrix: jnp.zeros_like(matrix, shape=matrix.shape[:-1])

    def step(la, matrix, message, node):
        own, linked = node
        before = la.where(linked > 0, la.vecmat(message, matrix), jnp.ones_like(own))
        scale = la.inner(before, own)
        after = before * own / scale[..., None]
        return after, (before, after, scale)

    time = own.shape[0]
    nodes = Read(own, time), Read(_after(linked).astype(own.dtype), time)
    return scan(Loop(begin, step, _nothing_more), 1, time, Read(matrix[None], 1), nodes)[1]


def _respond(
    scan: Scan,
    source: Float[Array, "time k"],
    weight: Float[Array, "time k"],
    gain: Float[Array, "time k"],
    matrix: Float[Array, "k k"],
) -> Float[Array, "time k"]:
    """x_{t+1} = source_{t+1} + gain_{t+1} ((weight_t (x_t - mean)) P): only differences count."""

    def begin(la, matrix):
        return (jnp.zeros_like(matrix, shape=matrix.shape[:-1]),) * 2

    def step(la, matrix, state, node):
        (message, weight), (source, gain, own) = state, node
        centred = message - la.inner(weight, message)[..., None]
        message = source + gain * la.vecmat(weight * centred, matrix)
        return (message, own), message

    time = source.shape[0]
    nodes = Read(source, time), Read(gain, time), Read(weight, time)
    return scan(Loop(begin, step, _nothing_more), 1, time, Read(matrix[None], 1), nodes)[1]


def _nothing_more(la, matrix: Array, state: Any) -> tuple[tuple, None]:
    return (), None


def _mean(weight: Array, x: Array) -> Float[Array, "time 1"]:
    return jnp.sum(weight * x, axis=1, keepdims=True)


def _after(linked: Array) -> Bool[Array, "time"]:
    """Steps with a link from the left."""
    return jnp.concatenate([jnp.zeros_like(linked, shape=1), linked])


def _before(linked: Array) -> Bool[Array, "time"]:
    """Steps with a link to the right."""
    return jnp.concatenate([linked, jnp.zeros_like(linked, shape=1)])
