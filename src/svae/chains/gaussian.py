r"""Exact inference in a Gaussian chain with time-varying potentials in information form.

$$ q(z) \propto \exp\Big\{\sum_t \langle h_t, z_t\rangle + \langle W_t, z_t z_t^\top\rangle
   + \sum_{t<T} \langle N_t, z_t z_{t+1}^\top\rangle \Big\} $$

so $J_t = -(W_t + W_t^\top)$ are the diagonal blocks of the joint precision and $-N_t$ the blocks beside
them. Nothing asks that the potentials come from a normalised model: the *expected* log-densities of
variational inference do not.

Inference is block elimination (`svae.chains.gaussian_nodes`); only the order differs. `sequential` goes
from left to right, `parallel` takes every second node at once, and `kernel` does that on a GPU with one
kernel for each round.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae import checks
from svae.chains import gaussian_parallel, gaussian_sequential
from svae.chains.forms import Form
from svae.chains.gaussian_nodes import Information, Moments
from svae.chains.gaussian_parallel import Chain, Level, Way
from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily
from svae.expfam.gaussian import LOG_2PI
from svae.kernels import tiles
from svae.kernels.scan import kernel_scan, plain_scan
from svae.linalg import identity_like, outer, symmetrize, transpose

PLAIN, KERNEL = Way(plain_scan, 2), Way(kernel_scan, 8)


class GaussianChainTerms(NamedTuple):
    """Pairs with z_t, z_t z_t' and z_t z_{t+1}'."""

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    cross: Float[Array, "time_minus_1 n n"]


class GaussianChain(ExponentialFamily):
    """The family of Gaussian chains; `length` marks padding, `form` picks the algorithm."""

    length: Length = None
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)

    def infer(self, natural: GaussianChainTerms) -> tuple[Float[Array, ""], GaussianChainTerms]:
        """Log-partition, E z_t, E z_t z_t' and E z_t z_{t+1}'."""
        self._check(natural)
        valid = self._valid(natural)
        log_partition, stats = self._algorithm(natural).stats(natural, valid)
        return self._with_constant(log_partition, natural), stats

    def linearize(
        self, natural: GaussianChainTerms
    ) -> tuple[Float[Array, ""], GaussianChainTerms, Callable[[GaussianChainTerms], GaussianChainTerms]]:
        """The same, and how the statistics answer changes: from the factors of one elimination."""
        self._check(natural)
        algorithm, valid = self._algorithm(natural), self._valid(natural)
        log_partition, stats, factors = algorithm.linearize(natural, valid)
        jacobian = jax.tree_util.Partial(algorithm.change, factors, valid)
        return self._with_constant(log_partition, natural), stats, jacobian

    def sample(self, key: PRNGKeyArray, natural: GaussianChainTerms) -> Float[Array, "time n"]:
        """A path, reparameterised: an affine map of standard normal noise."""
        self._check(natural)
        noise = jax.random.normal(key, natural.first.shape, natural.first.dtype)
        valid = self._valid(natural)
        return zero_padding(valid, self._algorithm(natural).draw(natural, valid, noise))

    def sufficient_stats(self, value: Float[Array, "time n"]) -> GaussianChainTerms:
        """(z_t, z_t z_t', z_t z_{t+1}')."""
        terms = GaussianChainTerms(value, outer(value, value), outer(value[:-1], value[1:]))
        return _zero_padding(self._valid(terms), terms)

    def _valid(self, terms: GaussianChainTerms) -> Bool[Array, "time"]:
        return valid_steps(terms.first.shape[0], self.length)

    def _check(self, natural: GaussianChainTerms) -> None:
        for name, field, axes in zip(natural._fields, natural, (2, 3, 3), strict=True):
            checks.require_axes(name, field, axes)
        time, size = natural.first.shape
        checks.require_shape("second", natural.second, (time, size, size))
        checks.require_shape("cross", natural.cross, (time - 1, size, size))

    def _with_constant(self, log_partition: Array, natural: GaussianChainTerms) -> Float[Array, ""]:
        """log(2 pi)/2 for each variable, counted here: padding adds exactly nothing then."""
        count = natural.first.shape[1] * jnp.sum(self._valid(natural), dtype=natural.first.dtype)
        return log_partition + 0.5 * LOG_2PI * count

    def _algorithm(self, natural: GaussianChainTerms) -> "_Algorithm":
        size, dtype = natural.first.shape[1], natural.first.dtype
        if self.form == Form.SEQUENTIAL:
            return _SEQUENTIAL
        if self.form == Form.PARALLEL or size > tiles.LARGEST or not tiles.can_hold(dtype):
            return _in_chunks(PLAIN)
        return _widened(_in_chunks(KERNEL), size)


class _Algorithm(NamedTuple):
    """One way to infer a chain; all take flags that mark the padding."""

    stats: Callable[..., tuple[Float[Array, ""], GaussianChainTerms]]
    linearize: Callable[..., tuple[Float[Array, ""], GaussianChainTerms, Any]]
    change: Callable[..., GaussianChainTerms]
    draw: Callable[..., Array]


def _zero_padding(valid: Bool[Array, "time"], terms: GaussianChainTerms) -> GaussianChainTerms:
    first, second, cross = terms
    return GaussianChainTerms(*zero_padding(valid, (first, second)), zero_padding(valid[1:], cross))


def _second_moments(valid: Bool[Array, "time"], moments: Moments) -> GaussianChainTerms:
    mean, covariance, cross = moments
    neighbours = cross[:-1] + outer(mean[:-1], mean[1:])
    return _zero_padding(valid, GaussianChainTerms(mean, covariance + outer(mean, mean), neighbours))


# Sequential


def _information(natural: GaussianChainTerms, valid: Bool[Array, "time"], alone: float) -> Information:
    """Where there is padding, nodes that stand alone: log-determinant zero, exactly."""
    first, second, cross = natural
    precision = -(second + transpose(second))
    precision = choose(valid, precision, alone * identity_like(precision))
    edge = jnp.concatenate([zero_padding(valid[1:], cross), jnp.zeros_like(second[:1])])
    return Information(precision, zero_padding(valid, first), edge)


def _sequential_linearize(
    natural: GaussianChainTerms, valid: Bool[Array, "time"]
) -> tuple[Float[Array, ""], GaussianChainTerms, gaussian_sequential.Factors]:
    log_partition, factors = gaussian_sequential.smooth(_information(natural, valid, 1.0))
    return log_partition, _second_moments(valid, factors.moments), factors


def _sequential_change(
    factors: gaussian_sequential.Factors, valid: Bool[Array, "time"], change: GaussianChainTerms
) -> GaussianChainTerms:
    """d E zz' = d Cov + dm m' + m dm', and likewise for neighbours."""
    mean = factors.moments.mean
    first, covariance, cross = gaussian_sequential.change(factors, _information(change, valid, 0.0))
    second = covariance + 2 * symmetrize(outer(first, mean))
    neighbours = cross[:-1] + outer(first[:-1], mean[1:]) + outer(mean[:-1], first[1:])
    return _zero_padding(valid, GaussianChainTerms(first, second, neighbours))


_SEQUENTIAL = _Algorithm(
    lambda natural, valid: _sequential_linearize(natural, valid)[:2],
    _sequential_linearize,
    _sequential_change,
    lambda natural, valid, noise: gaussian_sequential.draw(_information(natural, valid, 1.0), noise),
)


# In chunks


def _chain(natural: GaussianChainTerms, valid: Bool[Array, "time"]) -> Chain:
    first, second, cross = natural
    edge = cross if cross.shape[0] > 0 else jnp.zeros_like(second)
    return Chain(first, second, edge, valid.astype(first.dtype))


def _cut_stats(stats: gaussian_parallel.Stats, time: int) -> GaussianChainTerms:
    first, second, cross = stats
    return GaussianChainTerms(first[:time], second[:time], cross[: time - 1])


def _chunks_stats(way: Way, natural: GaussianChainTerms, valid: Bool[Array, "time"]):
    log_partition, stats = gaussian_parallel.stats(way, _chain(natural, valid))
    return log_partition, _cut_stats(stats, valid.shape[0])


def _chunks_linearize(way: Way, natural: GaussianChainTerms, valid: Bool[Array, "time"]):
    log_partition, levels = gaussian_parallel.moments(way, _chain(natural, valid))
    moments = Moments(*(x[: valid.shape[0]] for x in levels[0].moments[:3]))
    return log_partition, _second_moments(valid, moments), levels


def _chunks_change(way: Way, levels: list[Level], valid: Bool[Array, "time"], change: GaussianChainTerms):
    stats = gaussian_parallel.change(way, levels, _chain(change, valid))
    return _cut_stats(stats, valid.shape[0])


def _chunks_draw(way: Way, natural: GaussianChainTerms, valid: Bool[Array, "time"], noise: Array) -> Array:
    return gaussian_parallel.draw(way, _chain(natural, valid), noise)


def _in_chunks(way: Way) -> _Algorithm:
    return _Algorithm(*(partial(f, way) for f in (_chunks_stats, _chunks_linearize, _chunks_change, _chunks_draw)))


def _widened(algorithm: _Algorithm, size: int) -> _Algorithm:
    """The same for matrices with more rows, independent of all else, as kernels want them."""
    side = tiles.side(size)
    if side == size:
        return algorithm

    def widen(terms: GaussianChainTerms, alone: float = 0.0) -> GaussianChainTerms:
        pad = lambda x: jnp.pad(x, [(0, 0)] + [(0, side - size)] * (x.ndim - 1))
        first, second, cross = map(pad, terms)
        own = jnp.diag(jnp.where(jnp.arange(side) < size, 0, -0.5 * alone).astype(second.dtype))
        return GaussianChainTerms(first, second + own[None], cross)

    def cut(terms: GaussianChainTerms) -> GaussianChainTerms:
        return GaussianChainTerms(terms.first[:, :size], *(x[:, :size, :size] for x in terms[1:]))

    def linearize(natural, valid):
        log_partition, stats, factors = algorithm.linearize(widen(natural, 1.0), valid)
        return log_partition, cut(stats), factors

    def stats(natural, valid):
        log_partition, found = algorithm.stats(widen(natural, 1.0), valid)
        return log_partition, cut(found)

    def draw(natural, valid, noise):
        wide = jnp.pad(noise, [(0, 0), (0, side - size)])
        return algorithm.draw(widen(natural, 1.0), valid, wide)[:, :size]

    change = lambda factors, valid, change: cut(algorithm.change(factors, valid, widen(change)))
    return _Algorithm(stats, linearize, change, draw)


def natural_from_potentials(
    initial_precision: Float[Array, "n n"],
    initial_linear: Float[Array, "n"],
    transition_11: Float[Array, "time_minus_1 n n"],
    transition_12: Float[Array, "time_minus_1 n n"],
    transition_22: Float[Array, "time_minus_1 n n"],
    transition_1: Float[Array, "time_minus_1 n"],
    transition_2: Float[Array, "time_minus_1 n"],
    node_precision: Float[Array, "time n n"],
    node_linear: Float[Array, "time n"],
) -> GaussianChainTerms:
    r"""The chain of an LDS with (expected) potentials $J_0, h_0; J_{11}, J_{12}, J_{22}, h_1, h_2; R, r$.

    The transition factor is $\exp\{-h_1^\top z - \tfrac12 z^\top J_{11} z + z^\top J_{12} z'
    - \tfrac12 z'^\top J_{22} z' + h_2^\top z'\}$ with z, z' two neighbours; at each node
    $\exp\{r^\top z - \tfrac12 z^\top R z\}$ is added. R = 0, r = 0 marks a missing step.
    """
    precision = node_precision.at[0].add(initial_precision)
    precision = precision.at[:-1].add(transition_11).at[1:].add(transition_22)
    linear = node_linear.at[0].add(initial_linear).at[:-1].add(-transition_1).at[1:].add(transition_2)
    return GaussianChainTerms(linear, -0.5 * symmetrize(precision), transition_12)
