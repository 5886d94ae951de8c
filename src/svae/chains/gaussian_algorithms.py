"""The algorithms for a Gaussian chain, behind one interface: terms and flags in, terms out."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae.chains import gaussian_parallel, gaussian_sequential
from svae.chains.gaussian_parallel import Chain, Level, Way
from svae.chains.gaussian_sequential import Information, Moments
from svae.chains.gaussian_terms import GaussianChainTerms, without_padding
from svae.chains.padding import choose, zero_padding
from svae.kernels import tiles
from svae.linalg import identity_like, outer, symmetrize, transpose


class Algorithm(NamedTuple):
    """One way to infer a chain; all take flags that mark the padding."""

    stats: Callable[..., tuple[Float[Array, ""], GaussianChainTerms]]
    linearize: Callable[..., tuple[Float[Array, ""], GaussianChainTerms, Any]]
    change: Callable[..., GaussianChainTerms]
    draw: Callable[..., Array]


def _second_moments(valid: Bool[Array, "time"], moments: Moments) -> GaussianChainTerms:
    mean, covariance, cross = moments
    neighbours = cross[:-1] + outer(mean[:-1], mean[1:])
    return without_padding(valid, GaussianChainTerms(mean, covariance + outer(mean, mean), neighbours))


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
    return without_padding(valid, GaussianChainTerms(first, second, neighbours))


SEQUENTIAL = Algorithm(
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


def in_chunks(way: Way) -> Algorithm:
    """With the chain cut into chunks."""
    return Algorithm(
        partial(_chunks_stats, way),
        partial(_chunks_linearize, way),
        partial(_chunks_change, way),
        partial(_chunks_draw, way),
    )


def widened(algorithm: Algorithm, size: int) -> Algorithm:
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
    return Algorithm(stats, linearize, change, draw)
