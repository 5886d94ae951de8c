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

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae.chains.discrete_potentials import Potentials
from svae.chains.padding import zero_padding
from svae.kernels.ends import FromBothEnds
from svae.linalg import PRECISION, matmul, transpose


class Messages(NamedTuple):
    """From the left and from the right, `before` and `after` a step's own potential; `after` sums to one."""

    before: Float[Array, "2 time k"]
    after: Float[Array, "2 time k"]


class Factors(NamedTuple):
    """What `change` is made of."""

    matrix: Float[Array, "k k"]
    linked: Bool[Array, "time_minus_1"]
    messages: Messages
    node: Float[Array, "time k"]
    transition: Float[Array, "k k"]


def marginals(
    loops: FromBothEnds, potentials: Potentials
) -> tuple[Float[Array, ""], Float[Array, "time k"], Float[Array, "k k"], Factors]:
    """Log-partition, marginals, pair marginals summed over time, and what `change` needs."""
    node, transition, linked = potentials
    # A column's largest entry is a factor of its state's own potential
    column = jnp.max(transition, axis=0, keepdims=True)
    matrix = jnp.exp(transition - column)
    node = node.at[1:].add(jnp.where(linked[:, None], column, 0))
    inputs = node[None], _links(linked, node.dtype)
    (*_, total), messages = loops(_begin_filter, _filter, jnp.stack([matrix, matrix.T]), inputs)
    messages = Messages(*messages)
    product = messages.after[0] * messages.before[1]
    marginal = product / jnp.sum(product, axis=1, keepdims=True)
    start, end = _pair_messages(messages, linked)
    pairs = matrix * jnp.matmul(transpose(start), end, precision=PRECISION)
    return total[0], marginal, pairs, Factors(matrix, linked, messages, marginal, pairs)


def _pair_messages(messages: Messages, linked: Array) -> tuple[Array, Array]:
    """Vectors s_t, e_t with pairs xi_t[i, j] = s_t[i] P[i, j] e_t[j]; zero where there is no link."""
    end = messages.after[1, 1:]
    total = jnp.sum(messages.before[0, 1:] * end, axis=1, keepdims=True)
    return zero_padding(linked, messages.after[0, :-1] / total), end


def change(
    loops: FromBothEnds, factors: Factors, node: Float[Array, "time k"], transition: Float[Array, "k k"]
) -> tuple[Float[Array, "time k"], Float[Array, "k k"]]:
    """How the marginals and the summed pairs answer a change of the potentials."""
    matrix, linked, messages, marginal, pairs = factors
    before, after = messages
    moved = matrix * transition
    # (a_t (P dE)) from the left, ((P dE) w_{t+1}) from the right, at the step that they reach
    shifted = jnp.stack(
        [
            jnp.pad(matmul(after[0, :-1], moved), [(1, 0), (0, 0)]),
            jnp.pad(matmul(after[1, 1:], moved.T), [(0, 1), (0, 0)]),
        ]
    )
    inputs = node[None], shifted, before, after, _links(linked, node.dtype)
    _, (log_left, log_right) = loops(_begin_respond, _respond, jnp.stack([matrix, matrix.T]), inputs)

    both = log_left + log_right - node
    marginal_change = marginal * (both - _mean(marginal, both))
    # d xi_t = xi_t (d log a_t[i] + dE[i, j] + d log w_{t+1}[j] - their mean)
    start, end = _pair_messages(messages, linked)
    level = _mean(marginal[:-1], log_left[:-1]) + _mean(marginal[1:], log_right[1:])
    level = level + _mean(start, matmul(end, moved.T))
    starts = jnp.concatenate([start * (log_left[:-1] - level), start])
    ends = jnp.concatenate([end, end * log_right[1:]])
    pairs_change = pairs * transition + matrix * jnp.matmul(transpose(starts), ends, precision=PRECISION)
    return marginal_change, pairs_change


# Both loops take rows of vectors, or a vector


def _begin_filter(la, vector: Array) -> tuple[Array, Array, Array]:
    number = jnp.zeros_like(vector, shape=vector.shape[:-1])
    return vector, number + 1, number


def _filter(la, matrix: Array, state: tuple, inputs: tuple) -> tuple[tuple, tuple[Array, Array]]:
    """p_{t+1} = a_t P, or one where there is no link; a_t = b_t p_t / c_t, with sum of logarithms of c_t.

    Divided by c_t only after the product, which then need not wait for it.
    """
    (message, scale, total), (node, linked) = state, inputs
    level = jnp.max(node, axis=-1)
    own = jnp.exp(node - level[..., None])
    before = la.vecmat(message, matrix) / scale[..., None]
    before = la.where(linked > 0, before, jnp.ones_like(own))
    message, scale = before * own, la.inner(before, own)
    return (message, scale, total + level + jnp.log(scale)), (before, message / scale[..., None])


def _begin_respond(la, vector: Array) -> tuple[Array, Array]:
    return vector, vector


def _respond(la, matrix: Array, state: tuple, inputs: tuple) -> tuple[tuple, Array]:
    """x_{t+1} = n_{t+1} + ((a_t x_t) P + s_{t+1}) / p_{t+1} - mean of x_t: only differences count."""
    (message, weight), (node, shifted, before, after, linked) = state, inputs
    carried = (la.vecmat(weight * message, matrix) + shifted) / before
    carried = carried - la.inner(weight, message)[..., None]
    message = node + la.where(linked > 0, carried, jnp.zeros_like(carried))
    return (message, after), message


def _links(linked: Bool[Array, "time_minus_1"], dtype: Any) -> Float[Array, "2 time"]:
    """Whether each step has a link from the side that a message comes from."""
    return jnp.stack([jnp.pad(linked, (1, 0)), jnp.pad(linked, (0, 1))]).astype(dtype)


def _mean(weight: Array, x: Array) -> Float[Array, "time 1"]:
    return jnp.sum(weight * x, axis=1, keepdims=True)
