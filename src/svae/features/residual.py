"""The paper's classifier of motions: a residual network of convolutions over time.

    residual block     conv, batch norm, activation, conv, batch norm, activation, add the input
    downsampling block the same with stride 2 in the second conv; add the downsampled input
    classifier         residual 128, downsampling 128, residual 128, residual 128,
                       global average pool, dense

with ReLU and windows of 3 steps. Depth, width and activation are what the paper searched over. It leaves
open how an input of another width is added, here by a linear map of each step, and how the input is
downsampled, here by taking every second step, where the strided convolution also stands.
"""

from collections.abc import Iterable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.features.classifier import Classifier
from svae.features.layers import ConvNorm, Here, NextHere, keep, pool, steps_here
from svae.networks import Dense


class ResidualBlock(eqx.Module):
    """Two convolutions, and the input added to what comes out of their activation."""

    first: ConvNorm
    second: ConvNorm
    skip: Dense | None

    def __init__(
        self, inputs: int, outputs: int, window: int, activation: str, stride: int, key: PRNGKeyArray
    ):
        first_key, second_key, skip_key = jax.random.split(key, 3)
        self.first = ConvNorm(inputs, outputs, window, 1, first_key, activation=activation)
        self.second = ConvNorm(outputs, outputs, window, 1, second_key, stride=stride, activation=activation)
        self.skip = None if inputs == outputs else Dense(inputs, outputs, skip_key)

    def __call__(
        self, x: Float[Array, "batch time inputs"], here: Here, training: bool
    ) -> tuple[Float[Array, "batch steps outputs"], NextHere]:
        """The output, and which of its steps are here."""
        y, _ = self.first(x, here, training)
        y, here = self.second(y, here, training)
        x = x[:, :: self.second.stride]
        return y + (x if self.skip is None else keep(self.skip(x), here)), here


class ResidualClassifier(Classifier):
    """`depth` blocks of `width` channels; those numbered in `downsampling`, from 0, halve the time axis.

    Sequences may have any length from one step on, and the average at the end is over the steps that there
    are: features of short and of long sequences can be compared.
    """

    blocks: tuple[ResidualBlock, ...]
    head: Dense

    def __init__(
        self,
        channels: int,
        classes: int,
        key: PRNGKeyArray,
        *,
        depth: int = 4,
        width: int = 128,
        activation: str = "relu",
        window: int = 3,
        downsampling: Iterable[int] = (1,),
    ):
        if depth < 1 or width < 1:
            raise ValueError(f"depth and width must be positive, got {depth} and {width}")
        halves = set(downsampling)
        head_key, *keys = jax.random.split(key, depth + 1)
        self.blocks = tuple(
            ResidualBlock(
                width if number else channels, width, window, activation, 2 if number in halves else 1, key
            )
            for number, key in enumerate(keys)
        )
        self.head = Dense(width, classes, head_key)

    def features(
        self,
        values: Float[Array, "batch time channels"],
        lengths: Int[Array, "batch"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch width"]:
        """What global average pooling gives."""
        here = steps_here(lengths, values.shape[1])
        x = keep(values, here)
        for block in self.blocks:
            x, here = block(x, here, key is not None)
        return pool(x, here)
