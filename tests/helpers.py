"""Random problems, and comparisons, that several tests use."""

import jax
import jax.numpy as jnp
import numpy as np

from svae.chains import DiscreteChainTerms, GaussianChainTerms


def tree_close(actual, expected, rtol=1e-9, atol=1e-9):
    """Every leaf close, with the leaf's path in the message."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    paths = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(paths, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


def relative_error(actual, expected):
    """Norm of the difference over norm of the expected, all leaves together."""
    flat = lambda tree: np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(tree)])
    a, b = flat(actual), flat(expected)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def astype(tree, dtype):
    """Every floating leaf in another precision."""
    cast = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
    return jax.tree.map(cast, tree)


def random_spd(key, size, batch=()):
    """Well-conditioned positive definite matrices."""
    x = jax.random.normal(key, (*batch, size, 2 * size + 2))
    return x @ jnp.swapaxes(x, -1, -2) / (2 * size + 2)


def random_gaussian_chain(key, time, size, observed=None):
    """Natural parameters of a chain: random transitions, and potentials where observed."""
    keys = jax.random.split(key, 4)
    weights = 0.7 * jnp.eye(size)[None] + 0.3 / np.sqrt(size) * jax.random.normal(keys[0], (time - 1, size, size))
    noise = random_spd(keys[1], size, (time - 1,)) + 0.5 * jnp.eye(size)[None]
    linear = jax.random.normal(keys[2], (time, size))
    precision = jax.random.gamma(keys[3], 2.0, (time, size))
    if observed is not None:
        linear, precision = linear * observed[:, None], precision * observed[:, None]
    weights_t = jnp.swapaxes(weights, 1, 2)
    blocks = precision[:, :, None] * jnp.eye(size)[None]
    blocks = blocks.at[0].add(jnp.eye(size)).at[1:].add(noise).at[:-1].add(weights_t @ noise @ weights)
    return GaussianChainTerms(linear, -0.5 * blocks, weights_t @ noise)


def random_discrete_chain(key, time, states, shared=True, scale=2.0):
    """Random node and transition potentials."""
    node_key, transition_key = jax.random.split(key)
    shape = (states, states) if shared else (time - 1, states, states)
    node = scale * jax.random.normal(node_key, (time, states))
    return DiscreteChainTerms(node, jax.random.normal(transition_key, shape))
