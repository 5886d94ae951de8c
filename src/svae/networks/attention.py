r"""Attention with one head, and layers made of it.

$$ a_t = \sum_s w_{ts} V y_s, \qquad w_{ts} \propto m_{ts} \exp(\langle Q x_t, K y_s\rangle / \sqrt{n}), $$

where the mask m says which steps s the step t may see. A step that may see none gets zero, not an average.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae.networks.layers import Dense, DenseBlock, LayerNorm

LONGEST_WAVE = 10_000.0  # of the positions
HIDDEN = -1e30  # score of a step that may not be seen; finite, for the sake of gradients


class Attention(eqx.Module):
    """One head; queries from x, keys and values from y."""

    query: Dense
    key: Dense
    value: Dense
    head: Dense

    def __init__(self, width: int, inputs: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.query, self.head = Dense(width, width, keys[0]), Dense(width, width, keys[1])
        self.key, self.value = Dense(inputs, width, keys[2]), Dense(inputs, width, keys[3])

    def __call__(
        self,
        x: Float[Array, "time width"],
        y: Float[Array, "steps inputs"],
        mask: Bool[Array, "time steps"],
    ) -> Float[Array, "time width"]:
        """What each step of x learns from those steps of y that it may see."""
        scores = self.query(x) @ self.key(y).T / np.sqrt(x.shape[-1]).astype(x.dtype)
        weights = jax.nn.softmax(jnp.where(mask, scores, HIDDEN), axis=-1)
        # where all is hidden the softmax is uniform and would show everything
        return self.head(jnp.where(mask, weights, 0) @ self.value(y))


class FeedForward(eqx.Module):
    """LN(x + gelu(W x + b))."""

    dense: Dense
    norm: LayerNorm

    def __init__(self, width: int, key: PRNGKeyArray):
        self.dense, self.norm = Dense(width, width, key), LayerNorm(width)

    def __call__(self, x: Float[Array, "time width"]) -> Float[Array, "time width"]:
        """Step by step."""
        return self.norm(x + jax.nn.gelu(self.dense(x), approximate=True))


class AttentionEncoder(eqx.Module):
    """All frames that a frame may see, in both directions."""

    embed: DenseBlock
    attention: Attention
    norm: LayerNorm
    forward: FeedForward
    head: Dense

    def __init__(self, inputs: int, width: int, outputs: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.embed = DenseBlock(inputs, width, keys[0])
        self.attention, self.norm = Attention(width, width, keys[1]), LayerNorm(width)
        self.forward, self.head = FeedForward(width, keys[2]), Dense(width, outputs, keys[3])

    def __call__(
        self, x: Float[Array, "time inputs"], mask: Bool[Array, "time time"]
    ) -> Float[Array, "time outputs"]:
        """Of each frame."""
        x = with_positions(self.embed(x))
        x = self.norm(x + self.attention(x, x, mask))
        return self.head(self.forward(x))


class CausalDecoder(eqx.Module):
    """Each step from the latent variables up to it, and from the frames that it may see."""

    embed: DenseBlock
    attention: Attention
    norm: LayerNorm
    crossed: Attention
    crossed_norm: LayerNorm
    forward: FeedForward
    head: Dense

    def __init__(self, latent_dim: int, inputs: int, width: int, outputs: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 5)
        self.embed = DenseBlock(latent_dim, width, keys[0])
        self.attention, self.norm = Attention(width, width, keys[1]), LayerNorm(width)
        self.crossed, self.crossed_norm = Attention(width, inputs, keys[2]), LayerNorm(width)
        self.forward, self.head = FeedForward(width, keys[3]), Dense(width, outputs, keys[4])

    def __call__(
        self,
        z: Float[Array, "time latent"],
        x: Float[Array, "time inputs"],
        seen: Bool[Array, "time time"],
    ) -> Float[Array, "time outputs"]:
        """`seen`: the frames that each step may see."""
        h = with_positions(self.embed(z))
        h = self.norm(h + self.attention(h, h, earlier(z.shape[0], now=True)))
        h = self.crossed_norm(h + self.crossed(h, x, seen))
        return self.head(self.forward(h))


def earlier(time: int, now: bool) -> Bool[Array, "time time"]:
    """Whether s comes before t, or, if `now`, is t."""
    return jnp.tri(time, k=0 if now else -1, dtype=bool)


def same_block(observed: Bool[Array, "time"]) -> Bool[Array, "time time"]:
    """Whether s and t are observed, and everything between them."""
    block = jnp.cumsum(~observed)
    both = observed[:, None] & observed[None, :]
    return both & (block[:, None] == block[None, :])


def with_positions(x: Float[Array, "time width"]) -> Float[Array, "time width"]:
    """x plus sines and cosines of the time, with wavelengths in geometric progression."""
    time, width = x.shape
    rate = LONGEST_WAVE ** (-np.arange(0, width, 2) / width)
    angle = np.arange(time)[:, None] * rate[None]
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(time, -1)[:, :width]
    return x + jnp.asarray(waves, x.dtype)
