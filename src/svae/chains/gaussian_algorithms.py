"""The algorithms for a Gaussian chain, behind one interface: terms and flags in, terms out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae.chains import gaussian_parallel
from svae.chains.gaussian_parallel import Levels, Way
from svae.chains.gaussian_records import Chain, Moments, Stats
from svae.chains.gaussian_terms import GaussianChainTerms, without_padding
from svae.kernels import tiles
from svae.linalg import outer


class Algorithm(NamedTuple):
    """One way to infer a chain; all take flags that mark the padding."""

    stats: Callable[..., tuple[Float[Array, ""], GaussianChainTerms]]
    linearize: Callable[..., tuple[Float[Array, ""], GaussianChainTerms, Any]]
    change: Callable[..., GaussianChainTerms]
    draw: Callable[..., Array]


def _chain(natural: GaussianChainTerms, valid: Bool[Array, "time"]) -> Chain:
    first, second, cross = natural
    edge = cross if cross.shape[0] > 0 else jnp.zeros_like(second)
    return Chain(first, second, edge, valid.astype(first.dtype))


def _terms(stats: Stats, time: int) -> GaussianChainTerms:
    first, second, cross = stats
    return GaussianChainTerms(first, second, cross[: time - 1])


def _second_moments(valid: Bool[Array, "time"], moments: Moments) -> GaussianChainTerms:
    time = valid.shape[0]
    mean, covariance, cross = moments.mean[:time], moments.covariance[:time], moments.cross[: time - 1]
    neighbours = cross + outer(mean[:-1], mean[1:])
    return without_padding(valid, GaussianChainTerms(mean, covariance + outer(mean, mean), neighbours))


def in_chunks(way: Way) -> Algorithm:
    """Loops over the nodes of chunks; a chain that is not cut is one chunk."""

    def stats(natural: GaussianChainTerms, valid: Bool[Array, "time"]):
        log_partition, found = gaussian_parallel.stats(way, _chain(natural, valid))
        return log_partition, _terms(found, valid.shape[0])

    def linearize(natural: GaussianChainTerms, valid: Bool[Array, "time"]):
        log_partition, levels = gaussian_parallel.moments(way, _chain(natural, valid))
        return log_partition, _second_moments(valid, levels.moments), levels

    def change(levels: Levels, valid: Bool[Array, "time"], change: GaussianChainTerms):
        return _terms(gaussian_parallel.change(way, levels, _chain(change, valid)), valid.shape[0])

    def draw(natural: GaussianChainTerms, valid: Bool[Array, "time"], noise: Float[Array, "time n"]):
        return gaussian_parallel.draw(way, _chain(natural, valid), noise)

    return Algorithm(stats, linearize, change, draw)


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
