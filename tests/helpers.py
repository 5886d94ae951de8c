"""Random problems, and comparisons, that several tests use."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from svae.chains import DiscreteChainTerms, GaussianChainTerms
from svae.data import Recordings, as_recordings
from svae.expfam import inner, linearize, propagate

# All who train this little, on these recordings, share what is compiled: constants of programs are the same.
STEPS = 4  # before the second stage and after it
TINY = [
    f"pretrain.steps={STEPS}",
    f"joint.steps={STEPS}",
    "model.hidden=[8]",
    "model.num_states=2",
    "model.latent_dim=2",
    "dynamics.laps=2",
    "chunk=2",
    "batch_size=2",
]


def waves() -> Recordings:
    """Four recordings of three channels."""
    rng, steps = np.random.default_rng(0), np.arange(40)[:, None]
    phases = steps / np.array([3.0, 5.0, 7.0])
    return as_recordings([np.sin(phases + i) + 0.1 * rng.normal(size=(40, 3)) for i in range(4)], rate=10.0)


@contextmanager
def users_rules(rank_promotion: str = "allow") -> Iterator[None]:
    """JAX as it is outside these tests: single precision, and its own rules for mixing types and ranks."""
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion(rank_promotion),
    ):
        yield


def benchmark(name: str) -> ModuleType:
    """A script of the folder `benchmarks`, as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree_close(actual, expected, rtol=1e-9, atol=1e-9):
    """Every leaf close, with the leaf's path in the message."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    paths = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(paths, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


def relative_error(actual, expected):
    """Norm of the difference over norm of the expected, all leaves together."""
    a, b = (
        np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(tree)])
        for tree in (actual, expected)
    )
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def astype(tree, dtype):
    """Every floating leaf in another precision."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def generator(key):
    """A numpy generator: random problems need nothing compiled."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def random_spd(key, size, batch=()):
    """Well-conditioned positive definite matrices."""
    return jnp.asarray(_random_spd(generator(key), size, batch))


def _random_spd(rng, size, batch):
    x = rng.normal(size=(*batch, size, 2 * size + 2))
    return x @ np.swapaxes(x, -1, -2) / (2 * size + 2) + 0.2 * np.eye(size)


def random_gaussian_chain(key, time, size, observed=None):
    """Natural parameters of a chain: random transitions, and potentials where observed."""
    rng = generator(key)
    weights = 0.7 * np.eye(size) + 0.3 / np.sqrt(size) * rng.normal(size=(time - 1, size, size))
    noise = _random_spd(rng, size, (time - 1,)) + 0.5 * np.eye(size)
    linear, precision = rng.normal(size=(time, size)), rng.gamma(2.0, size=(time, size))
    if observed is not None:
        linear, precision = linear * observed[:, None], precision * observed[:, None]
    weights_t = np.swapaxes(weights, 1, 2)
    blocks = precision[:, :, None] * np.eye(size)
    blocks[0] += np.eye(size)
    blocks[1:] += noise
    blocks[:-1] += weights_t @ noise @ weights
    return GaussianChainTerms(*map(jnp.asarray, (linear, -0.5 * blocks, weights_t @ noise)))


def random_discrete_chain(key, time, states, shared=True, scale=2.0):
    """Random node and transition potentials."""
    rng = generator(key)
    node = scale * rng.normal(size=(time, states))
    transition = rng.normal(size=(states, states) if shared else (time - 1, states, states))
    return DiscreteChainTerms(jnp.asarray(node), jnp.asarray(transition))


def numerical_jacobian(oracle, natural, step=1e-5):
    """Central differences of the oracle's statistics."""
    flat, unravel = ravel_pytree(natural)

    def stats(x):
        return np.concatenate([np.ravel(field) for field in oracle(unravel(x))[1]])

    columns = [stats(flat + e) - stats(flat - e) for e in step * np.eye(flat.size)]
    return np.stack(columns, axis=1) / (2 * step)


def check_derivatives(family, natural, oracle, forward=True):
    """The Jacobian of belief propagation by every way the library has to it, against the oracle's.

    Not all families can be differentiated in forward mode.
    """
    flat, unravel = ravel_pytree(natural)
    expected = oracle(natural)

    @jax.jit
    def everything(natural):
        propagated, vjp = jax.vjp(lambda n: propagate(n, family), natural)
        log_partition, stats, jacobian = linearize(natural, family)
        differential = lambda n: (inner(expected[1], n), jacobian(n))
        jvp = jax.linearize(family.infer, natural)[1] if forward else differential

        def rows(direction):
            direction = unravel(direction)
            slope, pushed = jvp(direction)
            (pulled,) = vjp((jnp.zeros(()), direction))
            return slope, *(ravel_pytree(x)[0] for x in (pushed, pulled, jacobian(direction)))

        (gradient,) = vjp((jnp.ones(()), jax.tree.map(jnp.zeros_like, natural)))
        return [propagated, (log_partition, stats)], gradient, jax.vmap(rows)(jnp.eye(flat.size))

    values, gradient, (slope, pushed, pulled, mapped) = everything(natural)
    for value in values:
        tree_close(value, expected, rtol=1e-10, atol=1e-10)
    tree_close(gradient, expected[1], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(slope, ravel_pytree(expected[1])[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(pushed, pushed.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(pulled, pushed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mapped, pushed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pushed, numerical_jacobian(oracle, natural), rtol=1e-6, atol=1e-6)
