r"""Long short-term memory that begins anew after every gap.

$$ i, f, o = \sigma(\cdot),\quad g = \tanh(\cdot) \quad\text{of}\quad W x_t + U h_{t-1} + b, \qquad
   c_t = f\, c_{t-1} + i\, g, \quad h_t = o \tanh c_t. $$
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from svae.networks.layers import Dense, DenseBlock
from svae.networks.steps import step_by_step


class LSTMState(NamedTuple):
    """What is passed on from step to step."""

    cell: Float[Array, "*batch hidden"]
    output: Float[Array, "*batch hidden"]


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

    def begin(self, *batch: int) -> LSTMState:
        """Before the first step."""
        nothing = jnp.zeros((*batch, self.bias.shape[0] // 4), self.bias.dtype)
        return LSTMState(nothing, nothing)

    def step(self, state: LSTMState, x: Float[Array, "*batch inputs"]) -> LSTMState:
        """One step."""
        return self.remember(state, x @ self.input_weight.T)

    def remember(self, state: LSTMState, projected: Float[Array, "*batch gates"]) -> LSTMState:
        """One step, given what the input weights make of its input."""
        mixed = projected + state.output @ self.recurrent_weight.T
        i, f, g, o = jnp.split(mixed + jnp.broadcast_to(self.bias, mixed.shape), 4, axis=-1)
        cell = jax.nn.sigmoid(f) * state.cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return LSTMState(cell, jax.nn.sigmoid(o) * jnp.tanh(cell))

    def __call__(
        self,
        x: Float[Array, "*batch time inputs"],
        observed: Bool[Array, "*batch time"],
        after: Bool[Array, "*batch time"],
        reverse: bool = False,
    ) -> Float[Array, "*batch time hidden"]:
        """Outputs, zero where nothing is `observed`; a step that does not come `after` another begins anew.

        So each block of observed steps is read as if it were a sequence of its own.
        """
        projected = x @ self.input_weight.T  # of all steps at once
        inputs = jnp.moveaxis(projected, -2, 0), jnp.moveaxis(after, -1, 0)[..., None]
        _, outputs = step_by_step(_read, self, self.begin(*x.shape[:-2]), inputs, reverse)
        return jnp.where(observed[..., None], jnp.moveaxis(outputs, 0, -2), 0)


def _read(lstm: LSTM, state: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, Array]:
    projected, after = inputs
    state = lstm.remember(jax.tree.map(lambda s: jnp.where(after, s, 0), state), projected)
    return state, state.output


def random_orthogonal(key: PRNGKeyArray, size: int) -> Float[Array, "size size"]:
    """By Gram and Schmidt, in plain lax: LAPACK's calls from several threads can deadlock."""

    def column(j: Array, q: Array) -> Array:
        done = jnp.where(jnp.arange(size)[None] < j, q, 0)
        v = q[:, j]
        for _ in range(2):  # twice is enough
            v = v - done @ (done.T @ v)
        return q.at[:, j].set(v / jnp.sqrt(jnp.sum(v**2)))

    return jax.lax.fori_loop(0, size, column, jax.random.normal(key, (size, size), jnp.float32))


def follows(observed: Bool[Array, "*batch time"]) -> Bool[Array, "*batch time"]:
    """Steps with an observed one just before them."""
    return shifted(observed[..., None])[..., 0]


def precedes(observed: Bool[Array, "*batch time"]) -> Bool[Array, "*batch time"]:
    """Steps with an observed one just after them."""
    return jnp.flip(follows(jnp.flip(observed, -1)), -1)


def shifted(x: Shaped[Array, "*batch time size"]) -> Shaped[Array, "*batch time size"]:
    """Each step gets what belongs to the one before; the first gets zeros."""
    return jnp.concatenate([jnp.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2)


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
        self, features: Float[Array, "*batch time inputs"], observed: Bool[Array, "*batch time"]
    ) -> Float[Array, "*batch time outputs"]:
        """Of missing frames, the head's bias."""
        return self.head(self.backward(self.embed(features), observed, precedes(observed), reverse=True))
