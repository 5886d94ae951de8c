"""EfficientNetV2-S, for spectrograms as images with one channel.

Tan and Le, EfficientNetV2 (2021), in the form in which torchvision has it, which the paper used:

    stage  operator                 stride  channels  layers
    0      conv 3x3                 2       24        1
    1      fused MBConv 1, 3x3      1       24        2
    2      fused MBConv 4, 3x3      2       48        4
    3      fused MBConv 4, 3x3      2       64        4
    4      MBConv 4, 3x3, SE 1/4    2       128       6
    5      MBConv 6, 3x3, SE 1/4    1       160       9
    6      MBConv 6, 3x3, SE 1/4    2       256       15
    7      conv 1x1, pool, dense            1280      1

A number behind an operator is its expansion, SE stands for squeeze and excitation. Normalisation is by
batch, as published: in use its moments are fixed, so features of a spectrogram depend on no other. The
stride of a stage is that of its first layer.
"""

from math import ceil
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.features.classifier import Classifier
from svae.features.layers import ConvNorm, Here, Maps, NextHere, NextMaps, drop, keep, pool, steps_here
from svae.networks import Dense

EPSILON = 1e-3  # of the normalisation
SQUEEZE = 4  # a block's inputs for each channel that squeeze and excitation passes through
STEM = 24


class Stage(NamedTuple):
    """A row of the table."""

    fused: bool
    expansion: int
    stride: int
    channels: int
    layers: int


STAGES = (
    Stage(True, 1, 1, 24, 2),
    Stage(True, 4, 2, 48, 4),
    Stage(True, 4, 2, 64, 4),
    Stage(False, 4, 2, 128, 6),
    Stage(False, 6, 1, 160, 9),
    Stage(False, 6, 2, 256, 15),
)


def _conv(
    inputs: int,
    outputs: int,
    window: int,
    key: PRNGKeyArray,
    stride: int = 1,
    groups: int = 1,
    activation: str = "silu",
) -> ConvNorm:
    options = {"stride": stride, "groups": groups}
    return ConvNorm(inputs, outputs, window, 2, key, activation=activation, epsilon=EPSILON, **options)


class SqueezeExcitation(eqx.Module):
    """x times a gate for each channel, in (0, 1), made of the averages of all channels."""

    squeeze: Dense
    excite: Dense

    def __init__(self, channels: int, between: int, key: PRNGKeyArray):
        first, second = jax.random.split(key)
        self.squeeze = Dense(channels, between, first)
        self.excite = Dense(between, channels, second)

    def __call__(self, x: Maps, here: Here) -> Maps:
        """The gated input."""
        gate = jax.nn.sigmoid(self.excite(jax.nn.silu(self.squeeze(pool(x, here)))))
        return x * jnp.broadcast_to(gate[:, None, None, :], x.shape)


class Block(eqx.Module):
    """(Fused) MBConv: widen, look around, weigh channels, narrow; plus the input, if shapes agree.

    Fused, one convolution widens and looks around at once, and channels are not weighed; without expansion
    it is all there is. `dropped` is how often training leaves out everything but the input.
    """

    wide: tuple[ConvNorm, ...]
    weigh: SqueezeExcitation | None
    narrow: ConvNorm | None
    adds: bool = eqx.field(static=True)
    dropped: float = eqx.field(static=True)

    def __init__(self, inputs: int, stage: Stage, stride: int, dropped: float, key: PRNGKeyArray):
        first, second, third, fourth = jax.random.split(key, 4)
        outputs, between = stage.channels, inputs * stage.expansion
        alone = stage.fused and stage.expansion == 1
        if stage.fused:
            self.wide = (_conv(inputs, outputs if alone else between, 3, first, stride),)
            self.weigh = None
        else:
            depthwise = _conv(between, between, 3, second, stride, groups=between)
            self.wide = (_conv(inputs, between, 1, first), depthwise)
            self.weigh = SqueezeExcitation(between, max(1, inputs // SQUEEZE), third)
        self.narrow = None if alone else _conv(between, outputs, 1, fourth, activation="linear")
        self.adds = stride == 1 and inputs == outputs
        self.dropped = dropped

    def __call__(self, x: Maps, here: Here, key: PRNGKeyArray | None) -> tuple[NextMaps, NextHere]:
        """The output, and which of its steps are here."""
        y, training = x, key is not None
        for layer in self.wide:
            y, here = layer(y, here, training)
        if self.weigh is not None:
            y = self.weigh(y, here)
        if self.narrow is not None:
            y, here = self.narrow(y, here, training)
        return (x + drop(y, self.dropped, key, axes=1) if self.adds else y), here


class EfficientNet(Classifier):
    """The network of the table, its channels times `width` and its layers times `depth`.

    Time and frequency are halved five times, and the average at the end is over the steps that there are:
    spectrograms may have any number of frames and of frequencies.
    """

    stem: ConvNorm
    blocks: tuple[Block, ...]
    last: ConvNorm
    head: Dense
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        classes: int,
        key: PRNGKeyArray,
        *,
        image_channels: int = 1,
        width: float = 1.0,
        depth: float = 1.0,
        num_features: int = 1280,
        dropout: float = 0.2,
        stochastic_depth: float = 0.2,
    ):
        """`stochastic_depth` is how often training skips the last block; earlier ones, in proportion."""
        stages = [
            stage._replace(channels=_scaled(stage.channels, width), layers=ceil(stage.layers * depth))
            for stage in STAGES
        ]
        stem_key, last_key, head_key, block_key = jax.random.split(key, 4)
        inputs, total = _scaled(STEM, width), sum(stage.layers for stage in stages)
        self.stem = _conv(image_channels, inputs, 3, stem_key, stride=2)
        blocks: list[Block] = []
        keys = iter(jax.random.split(block_key, total))
        for stage in stages:
            for layer in range(stage.layers):
                dropped = stochastic_depth * len(blocks) / total
                stride = 1 if layer else stage.stride
                blocks.append(Block(inputs, stage, stride, dropped, next(keys)))
                inputs = stage.channels
        self.blocks = tuple(blocks)
        self.last = _conv(inputs, num_features, 1, last_key)
        self.head = Dense(num_features, classes, head_key)
        self.dropout = dropout

    def features(
        self,
        values: Float[Array, "batch time frequency"],
        lengths: Int[Array, "batch"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch features"]:
        """What global average pooling gives; a network for colours sees the same in each of them."""
        here = steps_here(lengths, values.shape[1])
        colours = self.stem.weight.shape[-2]
        x = jnp.broadcast_to(keep(values, here)[..., None], (*values.shape, colours))
        keys = [None] * (len(self.blocks) + 1) if key is None else jax.random.split(key, len(self.blocks) + 1)
        x, here = self.stem(x, here, key is not None)
        for block, block_key in zip(self.blocks, keys[1:], strict=True):
            x, here = block(x, here, block_key)
        x, here = self.last(x, here, key is not None)
        return drop(pool(x, here), self.dropout, keys[0], axes=2)


def _scaled(channels: int, width: float) -> int:
    """A multiple of eight near `width` times as many."""
    return max(8, 8 * round(channels * width / 8))
