"""What loops over the nodes of a Gaussian chain read, and the forms in which they show what they find."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.kernels.scan import Read


class Chain(NamedTuple):
    """Potentials as in `GaussianChainTerms`; where `valid` is zero a node stands alone.

    There may be fewer edges than nodes, and more flags. The last node's edge leads nowhere and is not read.
    """

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    edge: Float[Array, "edges n n"]
    valid: Float[Array, "flags"]


class Moments(NamedTuple):
    """Means, covariances, and covariances with the next node."""

    mean: Float[Array, "*time n"]
    covariance: Float[Array, "*time n n"]
    cross: Float[Array, "*time n n"]


class Stats(NamedTuple):
    """E z_t, E z_t z_t' and E z_t z_{t+1}', zero where there is nothing."""

    first: Float[Array, "*time n"]
    second: Float[Array, "*time n n"]
    cross: Float[Array, "*time n n"]


def wanted(time: int) -> Any:
    """How many entries of `Stats` there are in a chain: no edge leads away from its last node."""
    return Stats._make((time, time, max(time - 1, 1)))


class Potentials(NamedTuple):
    """One node's, and whether it and the next are valid."""

    first: Any
    second: Any
    edge: Any
    valid: Any
    linked: Any


def potentials(chain: Chain, flags: Array, stride: int, offset: int) -> Potentials:
    """Those that node s of chunk c reads, at `stride * c + offset + s`."""
    first, second, edge = (Read(x, stride, offset) for x in chain[:3])
    return Potentials(first, second, edge, Read(flags, stride, offset), Read(flags, stride, offset + 1))


def own_information(la, given: Potentials, alone: float) -> tuple[Array, Array, Array]:
    """J, h and N of a node by itself: those of its potentials, or, in the padding, `alone` I and nothing."""
    first, second, edge, valid, linked = given
    return (
        la.where(valid > 0, -2 * la.symmetrize(second), alone * la.identity_like(second)),
        la.where(valid > 0, first, jnp.zeros_like(first)),
        la.where(linked > 0, edge, jnp.zeros_like(edge)),
    )


# Forms of a node's moments, and of their change, given what is known of the next node's mean


def as_moments(la, here: Moments, mean_after: Array, flags: Any) -> Moments:
    """As they are."""
    return here


def as_stats(la, here: Moments, mean_after: Array, flags: Any) -> Stats:
    """E zz' = Cov + m m', and likewise for neighbours."""
    mean, covariance, cross = here
    second, cross = covariance + la.outer(mean, mean), cross + la.outer(mean, mean_after)
    return _where_valid(la, flags, mean, second, cross)


def as_moments_change(la, mean: Array, change: Moments, mean_after: Any, flags: Any) -> Moments:
    """As it is."""
    return change


def as_stats_change(la, mean: Array, change: Moments, mean_after: Any, flags: Any) -> Stats:
    """d E zz' = d Cov + dm m' + m dm', and likewise for neighbours; `mean_after` comes with its change."""
    moved, covariance, cross = change
    after, moved_after = mean_after
    second = covariance + 2 * la.symmetrize(la.outer(moved, mean))
    cross = cross + la.outer(moved, after) + la.outer(mean, moved_after)
    return _where_valid(la, flags, moved, second, cross)


def _where_valid(la, flags: Any, first: Array, second: Array, cross: Array) -> Stats:
    valid, linked = flags
    return Stats(
        la.where(valid > 0, first, jnp.zeros_like(first)),
        la.where(valid > 0, second, jnp.zeros_like(second)),
        la.where(linked > 0, cross, jnp.zeros_like(cross)),
    )
