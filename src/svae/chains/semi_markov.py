r"""Exact inference in a semi-Markov chain: states that last as long as they like.

A path is a row of segments, each with a state other than the last one's and an *extra dwell* d: it lasts
1 + d steps. With $c_t$ the steps that are left of a segment after step t,

$$ q(k, c) \propto \exp\Big\{\sum_t n_t[k_t] + \sum_{\text{segments}} W[k, d]
   + \sum_{\text{changes}} E[k, k']\Big\}, \qquad d < D. $$

The first segment begins at the first step. The last one may go on after the last step: its dwell is as
unknown as any other, and summed over, so nothing is assumed about where it would have ended.

Messages are over pairs of a state and what is left,

$$ \alpha_{t+1}(k, c) = n_{t+1}[k] + \log\Big(e^{\alpha_t(k, c + 1)}
   + e^{W[k, c]} \sum_{i \ne k} e^{\alpha_t(i, 0) + E[i, k]}\Big), $$

so a step takes $KD + K^2$ additions. Statistics are the gradient of the log-partition, and are found as such.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp, one_hot
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae import checks
from svae.chains.discrete_potentials import FORBIDDEN
from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily


class SemiMarkovTerms(NamedTuple):
    """Pairs with the one-hot vectors of k_t, the counts of changes, and those of dwells in each state."""

    node: Float[Array, "time k"]
    transition: Float[Array, "k k"]
    dwell: Float[Array, "k d"]


class SemiMarkovPath(NamedTuple):
    """The state of each step, and how many more steps its segment lasts after it."""

    state: Int[Array, "*batch time"]
    remaining: Int[Array, "*batch time"]


class SemiMarkovChain(ExponentialFamily):
    """The family of semi-Markov chains; `length` marks padding. No state follows itself but a single one."""

    num_states: int = eqx.field(static=True)
    max_dwell: int = eqx.field(static=True)  # the D above
    length: Length = None

    def infer(self, natural: SemiMarkovTerms) -> tuple[Float[Array, ""], SemiMarkovTerms]:
        """Log-partition and its gradient."""
        return jax.value_and_grad(self._log_partition)(self._checked(natural))

    def _log_partition(self, natural: SemiMarkovTerms) -> Float[Array, ""]:
        if natural.node.shape[0] == 0:
            return jnp.zeros((), natural.node.dtype)
        level, messages = self._forward(natural, logsumexp)
        total = level + logsumexp(messages[-1])
        return jnp.where(self._valid(natural)[0], total, 0)

    def sample(self, key: PRNGKeyArray, natural: SemiMarkovTerms) -> SemiMarkovPath:
        """A path."""
        time, dtype = natural.node.shape[0], natural.node.dtype
        last_key, key = jax.random.split(key)
        last = jax.random.gumbel(last_key, (self.num_states, self.max_dwell), dtype)
        before = jax.random.gumbel(key, (max(time - 1, 0), self.num_states + 1), dtype)
        return self._path(natural, last, before, logsumexp)

    def most_likely_path(self, natural: SemiMarkovTerms) -> SemiMarkovPath:
        """The path of highest probability (Viterbi)."""
        time, dtype = natural.node.shape[0], natural.node.dtype
        last = jnp.zeros((self.num_states, self.max_dwell), dtype)
        return self._path(natural, last, jnp.zeros((max(time - 1, 0), self.num_states + 1), dtype), jnp.max)

    def sufficient_stats(self, value: SemiMarkovPath) -> SemiMarkovTerms:
        """Of a path whose dwells are shorter than `max_dwell`; others have none, and get NaN."""
        valid = valid_steps(value.state.shape[0], self.length)
        node = zero_padding(valid, one_hot(value.state, self.num_states))
        known = (value.remaining < self.max_dwell)[:, None]
        left = jnp.where(known, one_hot(value.remaining, self.max_dwell), jnp.nan)
        left = zero_padding(valid, left)
        ended = jnp.concatenate([jnp.ones_like(left, shape=(1,)), left[:-1, 0]])[: len(left), None]
        begun = node * ended
        transition = jnp.einsum("ti,tj->ij", node[:-1], begun[1:])
        return SemiMarkovTerms(node, transition, jnp.einsum("tk,td->kd", begun, left))

    def _forward(
        self, natural: SemiMarkovTerms, reduce: Callable
    ) -> tuple[Float[Array, ""], Float[Array, "time k d"]]:
        """What the messages were lowered by in all, and the messages; those of padding are the last ones."""
        node, dwell, edge = natural.node, natural.dwell, self._edges(natural)

        def lowered(message):
            level = lax.stop_gradient(jnp.max(message))
            return message - level, level

        def step(message, x):
            own, inside = x
            enter = reduce(message[:, :1] + edge, axis=0)[:, None] + dwell
            over = jnp.full_like(message[:, :1], FORBIDDEN)
            stay = jnp.concatenate([message[:, 1:], over], axis=1)
            new, level = lowered(own[:, None] + reduce(jnp.stack([enter, stay]), axis=0))
            message = jnp.where(inside, new, message)
            return message, (message, jnp.where(inside, level, 0))

        first, level = lowered(node[0][:, None] + dwell)
        _, (rest, levels) = lax.scan(step, first, (node[1:], self._valid(natural)[1:]))
        return level + jnp.sum(levels), jnp.concatenate([first[None], rest])

    def _path(
        self,
        natural: SemiMarkovTerms,
        last: Float[Array, "k d"],
        before: Float[Array, "time_minus_1 k_plus_1"],
        reduce: Callable,
    ) -> SemiMarkovPath:
        """Backwards, each step the best (after noise) given the next one."""
        if natural.node.shape[0] == 0:
            return SemiMarkovPath(jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
        natural = self._checked(natural)
        messages, edge = self._forward(natural, reduce)[1], self._edges(natural)
        # What was left before a step that is in the middle of its segment: one more, if that can be
        longer = jnp.pad(messages, [(0, 0), (0, 0), (0, 1)], constant_values=FORBIDDEN)[:, :, 1:]

        def step(after, x):
            message, longer, noise, inside = x
            state, left = after
            changed = message[:, 0] + edge[:, state] + natural.dwell[state, left]
            chosen = jnp.argmax(jnp.append(changed, longer[state, left]) + noise).astype(jnp.int32)
            stayed = chosen == self.num_states
            here = jnp.where(stayed, state, chosen), jnp.where(stayed, left + 1, 0)
            here = jax.tree.map(lambda x, y: jnp.where(inside, x, y), here, after)
            return here, here

        best = jnp.argmax(messages[-1] + last).astype(jnp.int32)
        end = best // self.max_dwell, best % self.max_dwell
        valid = self._valid(natural)
        scanned = messages[:-1], longer[:-1], before, valid[1:]
        _, path = lax.scan(step, end, scanned, reverse=True)
        whole = (jnp.concatenate([x, y[None]]) for x, y in zip(path, end, strict=True))
        return zero_padding(valid, SemiMarkovPath(*whole))

    def _edges(self, natural: SemiMarkovTerms) -> Float[Array, "k k"]:
        same = jnp.eye(self.num_states, dtype=bool) & (self.num_states > 1)
        return jnp.where(same, FORBIDDEN, natural.transition)

    def _valid(self, natural: SemiMarkovTerms) -> Bool[Array, "time"]:
        return valid_steps(natural.node.shape[0], self.length)

    def _checked(self, natural: SemiMarkovTerms) -> SemiMarkovTerms:
        checks.require_axes("node", natural.node, 2)
        checks.require_shape("node", natural.node, (self.num_states,))
        checks.require_shape("transition", natural.transition, (self.num_states, self.num_states))
        checks.require_shape("dwell", natural.dwell, (self.num_states, self.max_dwell))
        node, transition, dwell = (jnp.maximum(x, FORBIDDEN) for x in natural)
        return SemiMarkovTerms(choose(self._valid(natural), node, jnp.zeros_like(node)), transition, dwell)
