"""The multilayer perceptron that encoders and decoders are made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

EPSILON = 1e-6  # of the layer normalisation


class Dense(eqx.Module):
    """y = W x + b, with LeCun-normal weights and zero bias to begin with."""

    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, "outputs"]

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray):
        draw = jax.nn.initializers.lecun_normal(in_axis=1, out_axis=0)
        self.weight = draw(key, (outputs, inputs), jnp.float32)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Over the last axis."""
        y = x @ self.weight.T
        return y + jnp.broadcast_to(self.bias, y.shape)


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift."""

    scale: Float[Array, "size"]
    shift: Float[Array, "size"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size, jnp.float32)
        self.shift = jnp.zeros(size, jnp.float32)

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        """Over the last axis."""
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        scale, shift = (jnp.broadcast_to(p, x.shape) for p in (self.scale, self.shift))
        return centred * jax.lax.rsqrt(variance + EPSILON) * scale + shift


class DenseBlock(eqx.Module):
    """Dense, GELU, layer normalisation."""

    dense: Dense
    norm: LayerNorm

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray):
        self.dense, self.norm = Dense(inputs, outputs, key), LayerNorm(outputs)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Over the last axis."""
        return self.norm(jax.nn.gelu(self.dense(x), approximate=True))


class MLP(eqx.Module):
    """Dense, GELU and layer normalisation, again and again, and a linear head; over the last axis."""

    layers: tuple[Dense, ...]
    norms: tuple[LayerNorm, ...]

    def __init__(self, sizes: tuple[int, ...], key: PRNGKeyArray):
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(Dense(a, b, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.norms = tuple(LayerNorm(size) for size in sizes[1:-1])

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """The network's output for each step."""
        for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
            x = norm(jax.nn.gelu(layer(x), approximate=True))
        return self.layers[-1](x)


class Residual(eqx.Module):
    """A linear map plus a network that begins as nothing: what is linear need not be learned."""

    linear: Dense
    network: MLP

    def __init__(self, sizes: tuple[int, ...], key: PRNGKeyArray):
        linear_key, network_key = jax.random.split(key)
        network = MLP(sizes, network_key)
        self.network = eqx.tree_at(lambda m: m.layers[-1].weight, network, replace_fn=jnp.zeros_like)
        self.linear = Dense(sizes[0], sizes[-1], linear_key)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """The sum of both."""
        return self.linear(x) + self.network(x)
