r"""Long short-term memory that begins anew after every gap.

$$ i, f, o = \sigma(\cdot),\quad g = \tanh(\cdot) \quad\text{of}\quad W x_t + U h_{t-1} + b, \qquad
   c_t = f\, c_{t-1} + i\, g, \quad h_t = o \tanh c_t. $$
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae.networks.layers import Dense, DenseBlock

STEPS_OF_GPU = 10


class LSTMState(NamedTuple):
    """What is passed on from step to step."""

    cell: Float[Array, "hidden"]
    output: Float[Array, "hidden"]


class LSTM(eqx.Module):
    """LeCun-normal input weights, orthogonal recurrent ones, one bias that begins at zero."""

    input_weight: Float[Array, "gates inputs"]
    recurrent_weight: Float[Array, "gates hidden"]
    bias: Float[Array, "gates"]

    def __init__(self, inputs: int, hidden: int, key: PRNGKeyArray):
        input_key, recurrent_key = jax.random.split(key)
        draw = jax.nn.initializers.lecun_normal(in_axis=1, out_axis=0)
        self.input_weight = draw(input_key, (4 * hidden, inputs), jnp.float32)
        each = jax.vmap(lambda k: random_orthogonal(k, hidden))(jax.random.split(recurrent_key, 4))
        self.recurrent_weight = each.reshape(4 * hidden, hidden)
        self.bias = jnp.zeros(4 * hidden, jnp.float32)

    def begin(self) -> LSTMState:
        """Before the first step."""
        nothing = jnp.zeros(self.bias.shape[0] // 4, self.bias.dtype)
        return LSTMState(nothing, nothing)

    def step(self, state: LSTMState, x: Float[Array, "inputs"]) -> LSTMState:
        """One step."""
        return self._remember(state, self.input_weight @ x)

    def _remember(self, state: LSTMState, projected: Float[Array, "gates"]) -> LSTMState:
        mixed = projected + self.recurrent_weight @ state.output + self.bias
        i, f, g, o = jnp.split(mixed, 4)
        cell = jax.nn.sigmoid(f) * state.cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return LSTMState(cell, jax.nn.sigmoid(o) * jnp.tanh(cell))

    def __call__(
        self,
        x: Float[Array, "time inputs"],
        observed: Bool[Array, "time"],
        after: Bool[Array, "time"],
        reverse: bool = False,
    ) -> Float[Array, "time hidden"]:
        """Outputs, zero where nothing is `observed`; a step that does not come `after` another begins anew.

        So each block of observed steps is read as if it were a sequence of its own.
        """

        def one(state: LSTMState, inputs: tuple[Array, Array, Array]) -> tuple[LSTMState, Array]:
            projected, observed, after = inputs
            state = jax.tree.map(lambda s: jnp.where(after, s, 0), state)
            state = self._remember(state, projected)
            return state, jnp.where(observed, state.output, 0)

        projected = x @ self.input_weight.T  # of all steps at once
        return step_by_step(one, self.begin(), (projected, observed, after), reverse)[1]


def step_by_step(
    one: Callable[[Any, Any], tuple[Any, Any]], start: Any, inputs: Any, reverse: bool = False
) -> Any:
    """A scan, of which GPUs get several steps at once: to begin one takes them longer than to do it."""
    unroll = STEPS_OF_GPU if jax.default_backend() == "gpu" else 1
    return jax.lax.scan(one, start, inputs, reverse=reverse, unroll=unroll)


def random_orthogonal(key: PRNGKeyArray, size: int) -> Float[Array, "size size"]:
    """By Gram and Schmidt, in plain lax: LAPACK's calls from several threads can deadlock."""

    def column(j: Array, q: Array) -> Array:
        done = jnp.where(jnp.arange(size)[None] < j, q, 0)
        v = q[:, j]
        for _ in range(2):  # twice is enough
            v = v - done @ (done.T @ v)
        return q.at[:, j].set(v / jnp.sqrt(jnp.sum(v**2)))

    return jax.lax.fori_loop(0, size, column, jax.random.normal(key, (size, size), jnp.float32))


def follows(observed: Bool[Array, "time"]) -> Bool[Array, "time"]:
    """Steps with an observed one just before them."""
    return jnp.concatenate([jnp.zeros(1, bool), observed[:-1]])


def precedes(observed: Bool[Array, "time"]) -> Bool[Array, "time"]:
    """Steps with an observed one just after them."""
    return jnp.concatenate([observed[1:], jnp.zeros(1, bool)])


def shifted(x: Float[Array, "time size"]) -> Float[Array, "time size"]:
    """Each step gets what belongs to the one before; the first gets zeros."""
    return jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


class BackwardEncoder(eqx.Module):
    """y_t from x_t and all that follows it in its block of observed frames."""

    embed: DenseBlock
    backward: LSTM
    head: Dense

    def __init__(self, inputs: int, embedded: int, hidden: int, outputs: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.embed = DenseBlock(inputs, embedded, keys[0])
        self.backward = LSTM(embedded, hidden, keys[1])
        self.head = Dense(hidden, outputs, keys[2])

    def __call__(
        self, features: Float[Array, "time inputs"], observed: Bool[Array, "time"]
    ) -> Float[Array, "time outputs"]:
        """Of missing frames, the head's bias."""
        return self.head(self.backward(self.embed(features), observed, precedes(observed), reverse=True))
