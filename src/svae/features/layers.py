"""Convolution, batch normalisation and pooling for sequences of different lengths.

Arrays are (batch, time, ..., channels), and `here` tells which steps belong to a sequence. The others are
zero before and after every layer, just as all is zero beyond the edge of an array: a sequence has the same
features however much padding follows it.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
    "linear": lambda x: x,
}
LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}

Here = Bool[Array, "batch time"]
Maps = Float[Array, "batch time ... channels"]
# what a layer makes of them: another number of steps and of channels
NextHere = Bool[Array, "batch steps"]
NextMaps = Float[Array, "batch steps ... outputs"]


def steps_here(lengths: Int[Array, "batch"], time: int) -> Here:
    """Which steps come before each sequence's end."""
    return jnp.arange(time, dtype=lengths.dtype)[None, :] < lengths[:, None]


def keep(x: Maps, here: Here) -> Maps:
    """Zero at all steps that are not here."""
    return jnp.where(_like(here, x), x, jnp.zeros_like(x))


def pool(x: Maps, here: Here) -> Float[Array, "batch channels"]:
    """Average over all steps that are here, and over all axes between time and channels."""
    axes = tuple(range(1, x.ndim - 1))
    count = jnp.sum(_like(here, x[..., :1]), axis=axes).astype(x.dtype)
    total = jnp.sum(keep(x, here), axis=axes)
    return total / jnp.broadcast_to(jnp.maximum(count, 1), total.shape)


def _like(here: Here, x: Maps) -> Bool[Array, "batch time ... channels"]:
    return jnp.broadcast_to(here.reshape(*here.shape, *(1,) * (x.ndim - 2)), x.shape)


def drop(x: Array, rate: float, key: PRNGKeyArray | None, axes: int) -> Array:
    """While training: zeros with probability `rate`, one draw for each index of the first `axes` axes.

    What is kept grows by 1 / (1 - rate), so that the mean stays.
    """
    if key is None or rate == 0:
        return x
    shape = x.shape[:axes] + (1,) * (x.ndim - axes)
    kept = jnp.broadcast_to(jax.random.bernoulli(key, 1 - rate, shape), x.shape)
    return jnp.where(kept, x / (1 - rate), jnp.zeros_like(x))


class Moments(NamedTuple):
    """Mean and variance of each channel."""

    mean: Float[Array, "channels"]
    variance: Float[Array, "channels"]


class BatchNorm(eqx.Module):
    """y = scale (x - mean) / sqrt(variance + epsilon) + shift, channel by channel.

    In training, mean and variance are those of the batch, padding left out, and the stored ones follow
    them. In use they are the stored ones: a fixed affine map, so that what comes out for a sequence depends
    on nothing but that sequence.
    """

    scale: Float[Array, "channels"]
    shift: Float[Array, "channels"]
    moments: Moments
    epsilon: float = eqx.field(static=True)

    def __init__(self, channels: int, epsilon: float):
        self.scale = jnp.ones(channels, jnp.float32)
        self.shift = jnp.zeros(channels, jnp.float32)
        self.moments = Moments(jnp.zeros(channels, jnp.float32), jnp.ones(channels, jnp.float32))
        self.epsilon = epsilon

    def __call__(self, x: Maps, here: Here, training: bool) -> Maps:
        """Over all axes but the last."""
        seen = _moments(x, here) if training else self.moments
        slope = self.scale * lax.rsqrt(seen.variance + self.epsilon)
        mean, slope, shift = (jnp.broadcast_to(p, x.shape) for p in (seen.mean, slope, self.shift))
        y = (x - mean) * slope + shift
        return _followed(y, self.moments, seen) if training else y


def _moments(x: Maps, here: Here) -> Moments:
    axes = tuple(range(x.ndim - 1))
    count = jnp.maximum(jnp.sum(_like(here, x[..., :1])), 1).astype(x.dtype)
    mean = jnp.sum(keep(x, here), axis=axes) / count
    centred = keep(x - jnp.broadcast_to(mean, x.shape), here)
    return Moments(mean, jnp.sum(centred**2, axis=axes) / count)


@jax.custom_vjp
def _followed(y: Array, stored: Moments, seen: Moments) -> Array:
    """y as it is; and for a gradient, `stored` gets how far it lies from what was seen.

    A running average, stored <- stored - rate (stored - seen), is descent along that difference. Given out
    as a gradient it needs no state beside the network: an optimiser moves it, see `svae.features.training`.
    """
    return y


def _forward(y: Array, stored: Moments, seen: Moments) -> tuple[Array, Moments]:
    return y, jax.tree.map(jnp.subtract, stored, seen)


def _backward(difference: Moments, cotangent: Array) -> tuple[Array, Moments, Moments]:
    return cotangent, difference, jax.tree.map(jnp.zeros_like, difference)


_followed.defvjp(_forward, _backward)


def convolve(x: Maps, weight: Float[Array, "... outputs"], stride: int, groups: int) -> NextMaps:
    """With zeros beyond the edges, as far as half a window reaches.

    Over time alone, all that a window covers is laid side by side for one matrix product: inside the loop of
    a training program, a CPU takes an order of magnitude longer for a convolution.
    """
    axes, window = x.ndim - 2, weight.shape[0]
    half = window // 2
    if axes == 1 and groups == 1:
        padded = jnp.pad(x, ((0, 0), (half, half), (0, 0)))
        covered = [padded[:, i : i + x.shape[1] : stride] for i in range(window)]
        return jnp.concatenate(covered, axis=-1) @ weight.reshape(-1, weight.shape[-1])
    return lax.conv_general_dilated(
        x,
        weight,
        (stride,) * axes,
        [(half, half)] * axes,
        dimension_numbers=LAYOUTS[axes],
        feature_group_count=groups,
    )


class ConvNorm(eqx.Module):
    """Convolution, batch normalisation, activation.

    The convolution has no bias, which the normalisation would only take off again. It looks equally far to
    both sides, so with a stride of 2 its outputs stand at steps 0, 2, 4, ..., whatever the length.
    """

    weight: Float[Array, "*window inputs outputs"]
    norm: BatchNorm
    stride: int = eqx.field(static=True)
    groups: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: int,
        axes: int,
        key: PRNGKeyArray,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: str = "relu",
        epsilon: float = 1e-5,
    ):
        """`axes` is 1 for sequences and 2 for images; `groups` = `inputs` is a depthwise convolution."""
        if window % 2 == 0:
            raise ValueError(
                f"a convolution looks equally far to both sides: window must be odd, got {window}"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got '{activation}'")
        draw = jax.nn.initializers.he_normal(in_axis=-2, out_axis=-1)
        self.weight = draw(key, (*(window,) * axes, inputs // groups, outputs), jnp.float32)
        self.norm = BatchNorm(outputs, epsilon)
        self.stride = stride
        self.groups = groups
        self.activation = activation

    def __call__(self, x: Maps, here: Here, training: bool) -> tuple[NextMaps, NextHere]:
        """The output, and which of its steps are here."""
        y = convolve(x, self.weight, self.stride, self.groups)
        here = here[:, :: self.stride]
        return keep(ACTIVATIONS[self.activation](self.norm(y, here, training)), here), here
