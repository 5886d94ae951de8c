"""A Gaussian chain in chunks: all of them at once, then the chain of their first nodes, and so on.

Given the first nodes of its own and of the next chunk, the nodes between are independent of all others.
They are eliminated from left to right, which leaves a shorter chain of first nodes; on the way back they
are restored from right to left. Chunks of two nodes are odd-even reduction. What happens at a node is in
`svae.chains.gaussian_nodes`; `scan` runs the loops, in plain form or in a kernel (`svae.kernels.scan`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.chains import gaussian_nodes as nodes
from svae.chains.gaussian_nodes import Conditional, Neighbours, Node
from svae.kernels.scan import Loop, Read, Scan


class Way(NamedTuple):
    """How loops are run, and how many nodes a chunk has."""

    scan: Scan
    size: int


class Chain(NamedTuple):
    """Potentials as in `GaussianChainTerms`; where `valid` is zero a node stands alone.

    There may be fewer edges than nodes, and more flags. The last node's edge leads nowhere and is not read.
    """

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    edge: Float[Array, "edges n n"]
    valid: Float[Array, "flags"]


class Moments(NamedTuple):
    """Of each node: mean, covariance, and covariances with the next node and with its chunk's first."""

    mean: Float[Array, "time n"]
    covariance: Float[Array, "time n n"]
    cross: Float[Array, "time n n"]
    reach: Float[Array, "time n n"]


class Stats(NamedTuple):
    """E z_t, E z_t z_t' and E z_t z_{t+1}', zero where there is nothing."""

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    cross: Float[Array, "time n n"]


class Level(NamedTuple):
    """The conditionals of the nodes that were eliminated, and the moments of all."""

    eliminated: Conditional
    moments: Moments


class _Layout(NamedTuple):
    """Chunk c has the nodes `stride * c + offset + s`, s < length, and one before them if `offset` is 1."""

    chunks: int
    length: int
    stride: int
    offset: int

    @property
    def final(self) -> bool:
        """Whether this is all in one chunk, with no first node to be left over."""
        return self.offset == 0


def _layout(way: Way, chain: Chain) -> _Layout:
    time = chain.first.shape[0]
    if time <= way.size:
        return _Layout(1, time, time, 0)
    return _Layout(-(-time // way.size), way.size - 1, way.size, 1)


def stats(way: Way, chain: Chain) -> tuple[Float[Array, ""], Stats]:
    """Log-partition (less log(2 pi)/2 for each variable) and expected statistics."""
    log_partition, eliminated, levels = _down(way, chain)
    return log_partition, _up(way, chain, eliminated, levels, _as_stats)


def moments(way: Way, chain: Chain) -> tuple[Float[Array, ""], list[Level]]:
    """Log-partition and, level by level, what `change` needs; the first has the moments of the chain."""
    log_partition, eliminated, levels = _down(way, chain)
    return log_partition, [Level(eliminated, _up(way, chain, eliminated, levels, _as_moments)), *levels]


def change(way: Way, levels: list[Level], given: Chain) -> Stats:
    """How the statistics answer a change of the potentials."""
    return _change(way, levels, given, _as_stats_change)


def draw(way: Way, chain: Chain, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    """A path, an affine map of the noise."""
    layout = _layout(way, chain)
    loop = Loop(_begin, _eliminate_to_sample, _end)
    front, sampler = way.scan(loop, *layout[:2], _start(chain, layout), _nodes(chain, layout))
    if layout.final:
        ends = jnp.zeros_like(noise[:1])
    else:
        ends = draw(way, _first_nodes(chain, layout, front), noise[:: layout.stride])
    loop = Loop(_from_right, _draw, _no_lead if layout.final else _lead_draw, reverse=True)
    own = Read(noise, layout.stride, layout.offset)
    values = way.scan(loop, *layout[:2], (Read(ends, 1), Read(ends, 1, 1)), (_inner(sampler, layout), own))[1]
    return values[: noise.shape[0]]


def _down(way: Way, chain: Chain) -> tuple[Float[Array, ""], Conditional, list[Level]]:
    """Eliminate all nodes; give this level's conditionals, and all about the levels below."""
    layout = _layout(way, chain)
    loop = Loop(_begin, _eliminate, _end)
    front, eliminated = way.scan(loop, *layout[:2], _start(chain, layout), _nodes(chain, layout))
    own = jnp.sum(front.log_partition)
    if layout.final:
        return own, eliminated, []
    rest, levels = moments(way, _first_nodes(chain, layout, front))
    return own + rest, eliminated, levels


def _up(way: Way, chain: Chain, eliminated: Conditional, levels: list[Level], present: Callable) -> Any:
    """Restore the nodes that were eliminated, and show all in the form wanted."""
    layout = _layout(way, chain)
    end = _no_lead if layout.final else partial(_lead, present)
    loop = Loop(_around, partial(_restore, present), end, reverse=True)
    flags = _flags(chain, layout)
    bounds = _bounds(levels[0].moments if levels else _nothing(chain))
    constants = bounds, (Read(flags, layout.stride), Read(flags, layout.stride, 1))
    return way.scan(loop, *layout[:2], constants, (_inner(eliminated, layout), _own_flags(flags, layout)))[1]


def _change(way: Way, levels: list[Level], given: Chain, present: Callable) -> Any:
    (eliminated, own), *below = levels
    layout = _layout(way, given)
    conditional = _inner(eliminated, layout)
    loop = Loop(_begin, _eliminate_change, _end)
    nodes_ = conditional, _nodes(given, layout)
    front, moved = way.scan(loop, *layout[:2], _start(given, layout), nodes_)
    if layout.final:
        coarse = coarse_change = _nothing(given)
    else:
        coarse, given_below = below[0].moments, _first_nodes(given, layout, front, alone=0.0)
        coarse_change = _change(way, below, given_below, _as_moments_change)

    end = _no_lead if layout.final else partial(_lead_change, present)
    loop = Loop(_around_change, partial(_restore_change, present), end, reverse=True)
    flags = _flags(given, layout)
    constants = (
        _bounds(coarse),
        _bounds(coarse_change),
        (Read(flags, layout.stride), Read(flags, layout.stride, 1)),
    )
    was = jax.tree.map(lambda x: Read(x, layout.stride, layout.offset), own)
    inner = conditional, _inner(moved, layout), was, _own_flags(flags, layout)
    return way.scan(loop, *layout[:2], constants, inner)[1]


# What the loops read


class _Potentials(NamedTuple):
    """One node's, and whether it and the next are valid."""

    first: Any
    second: Any
    edge: Any
    valid: Any
    linked: Any


class _Start(NamedTuple):
    """The edge from a chunk's first node to the second, and whether that is valid."""

    edge: Any
    linked: Any


def _flags(chain: Chain, layout: _Layout) -> Float[Array, "flags"]:
    """Whether each node that some chunk may ask for is there."""
    time = chain.first.shape[0]
    return jnp.pad(chain.valid, (0, layout.chunks * layout.stride + 1 - time))


def _own_flags(flags: Array, layout: _Layout) -> tuple[Read, Read]:
    return Read(flags, layout.stride, layout.offset), Read(flags, layout.stride, layout.offset + 1)


def _nodes(chain: Chain, layout: _Layout) -> _Potentials:
    first, second, edge = (Read(x, layout.stride, layout.offset) for x in chain[:3])
    return _Potentials(first, second, edge, *_own_flags(_flags(chain, layout), layout))


def _start(chain: Chain, layout: _Layout) -> _Start:
    if layout.final:
        return _Start(Read(jnp.zeros_like(chain.second[:1]), 1), Read(jnp.zeros_like(chain.valid[:1]), 1))
    return _Start(Read(chain.edge, layout.stride), Read(_flags(chain, layout), layout.stride, 1))


def _inner(record: Any, layout: _Layout) -> Any:
    """What an earlier loop gave for the same nodes."""
    return jax.tree.map(lambda x: Read(x, layout.length), record)


def _bounds(coarse: Moments) -> Neighbours:
    """Moments of a chunk's first node and of the next chunk's; the last chunk has none and needs none."""
    mean, covariance, cross, _ = coarse
    both = lambda x: (Read(x, 1), Read(x, 1, 1))
    return Neighbours._make([*both(mean), *both(covariance), Read(cross, 1)])


def _nothing(chain: Chain) -> Moments:
    """In place of first nodes' moments, where there are none."""
    vector, matrix = jnp.zeros_like(chain.first[:1]), jnp.zeros_like(chain.second[:1])
    return Moments(vector, matrix, matrix, matrix)


# Elimination, from left to right


class _Front(NamedTuple):
    """The edge between a chunk's first and its present node, what was sent to both, what was integrated."""

    edge: Array
    precision: Array
    linear: Array
    first_precision: Array
    first_linear: Array
    log_partition: Array


def _begin(la, start: _Start) -> _Front:
    matrix = jnp.zeros_like(start.edge)
    vector, scalar = (
        jnp.zeros_like(matrix, shape=matrix.shape[:-1]),
        jnp.zeros_like(matrix, shape=matrix.shape[:-2]),
    )
    edge = la.where(start.linked > 0, start.edge, matrix)
    return _Front(edge, matrix, vector, matrix, vector, scalar)


def _end(la, start: _Start, front: _Front) -> tuple[_Front, None]:
    return front, None


def _advance(front: _Front, messages: nodes.Messages, log_partition: Array) -> _Front:
    return _Front(
        messages.edge,
        messages.precision_right,
        messages.linear_right,
        front.first_precision + messages.precision_left,
        front.first_linear + messages.linear_left,
        front.log_partition + log_partition,
    )


def _present_node(la, front: _Front, potentials: _Potentials, alone: float) -> Node:
    first, second, edge, valid, linked = potentials
    matrix, vector = jnp.zeros_like(second), jnp.zeros_like(first)
    precision = la.where(valid > 0, -2 * la.symmetrize(second), alone * la.identity_like(second))
    return Node(
        precision - front.precision,
        la.where(valid > 0, first, vector) + front.linear,
        front.edge,
        la.where(linked > 0, edge, matrix),
    )


def _eliminate(la, start: _Start, front: _Front, potentials: _Potentials) -> tuple[_Front, Conditional]:
    node = _present_node(la, front, potentials, alone=1.0)
    own, conditional, messages = nodes.eliminate(la, node)
    return _advance(front, messages, own), conditional


def _eliminate_change(la, start: _Start, front: _Front, given: Any) -> tuple[_Front, Conditional]:
    conditional, potentials = given
    node = _present_node(la, front, potentials, alone=0.0)
    moved, messages = nodes.eliminate_change(la, conditional, node)
    return _advance(front, messages, jnp.zeros_like(front.log_partition)), moved


def _eliminate_to_sample(
    la, start: _Start, front: _Front, potentials: _Potentials
) -> tuple[_Front, nodes.Sampler]:
    node = _present_node(la, front, potentials, alone=1.0)
    sampler, messages = nodes.eliminate_to_sample(la, node)
    return _advance(front, messages, jnp.zeros_like(front.log_partition)), sampler


def _first_nodes(chain: Chain, layout: _Layout, front: _Front, alone: float = 1.0) -> Chain:
    """The chain that is left."""
    after = lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    valid, second, first = (x[:: layout.stride] for x in (chain.valid, chain.second, chain.first))
    eye = -0.5 * alone * jnp.eye(second.shape[-1], dtype=second.dtype)
    second = jnp.where(valid[:, None, None] > 0, second, eye[None])
    first = jnp.where(valid[:, None] > 0, first, 0)
    return Chain(
        first + front.first_linear + after(front.linear),
        second + 0.5 * (front.first_precision + after(front.precision)),
        front.edge,
        jnp.ones_like(valid),
    )


# Restoring, from right to left


class _Right(NamedTuple):
    """Moments of the node to the right, and its covariance with the chunk's first."""

    mean: Array
    covariance: Array
    reach: Array


def _around(la, constants: Any) -> _Right:
    bounds, _ = constants
    return _Right(bounds.mean_right, bounds.covariance_right, bounds.cross)


def _neighbours(bounds: Neighbours, right: _Right) -> Neighbours:
    return Neighbours(bounds.mean_left, right.mean, bounds.covariance_left, right.covariance, right.reach)


def _restore(present: Callable, la, constants: Any, right: _Right, node: Any) -> tuple[_Right, Any]:
    conditional, flags = node
    own = nodes.restore(la, conditional, _neighbours(constants[0], right))
    here = _Right(own.mean, own.covariance, own.cross_left)
    return here, present(la, here, own.cross_right, right.mean, flags)


def _lead(present: Callable, la, constants: Any, right: _Right) -> tuple[tuple, Any]:
    bounds, flags = constants
    here = _Right(bounds.mean_left, bounds.covariance_left, right.reach)
    return (), present(la, here, right.reach, right.mean, flags)


def _no_lead(la, constants: Any, right: Any) -> tuple[tuple, None]:
    return (), None


def _as_moments(la, here: _Right, cross: Array, mean_after: Any, flags: Any) -> Moments:
    return Moments(here.mean, here.covariance, cross, here.reach)


def _as_stats(la, here: _Right, cross: Array, mean_after: Array, flags: Any) -> Stats:
    second = here.covariance + la.outer(here.mean, here.mean)
    return _where_valid(la, flags, here.mean, second, cross + la.outer(here.mean, mean_after))


def _where_valid(la, flags: Any, first: Array, second: Array, cross: Array) -> Stats:
    valid, linked = flags
    return Stats(
        la.where(valid > 0, first, jnp.zeros_like(first)),
        la.where(valid > 0, second, jnp.zeros_like(second)),
        la.where(linked > 0, cross, jnp.zeros_like(cross)),
    )


def _around_change(la, constants: Any) -> tuple[_Right, _Right]:
    bounds, changes, _ = constants
    return _around(la, (bounds, ())), _around(la, (changes, ()))


def _restore_change(present: Callable, la, constants: Any, right: Any, node: Any) -> tuple[Any, Any]:
    bounds, changes, _ = constants
    was_right, right_change = right
    conditional, moved, was, flags = node
    own = nodes.restore_change(
        la,
        conditional,
        _neighbours(bounds, was_right),
        (was.reach, was.cross),
        moved,
        _neighbours(changes, right_change),
    )
    here, here_change = (
        _Right(was.mean, was.covariance, was.reach),
        _Right(own.mean, own.covariance, own.cross_left),
    )
    shown = present(la, (here, here_change), own.cross_right, (was_right.mean, right_change.mean), flags)
    return (here, here_change), shown


def _lead_change(present: Callable, la, constants: Any, right: Any) -> tuple[tuple, Any]:
    bounds, changes, flags = constants
    was_right, right_change = right
    here = _Right(bounds.mean_left, bounds.covariance_left, was_right.reach)
    here_change = _Right(changes.mean_left, changes.covariance_left, right_change.reach)
    means = was_right.mean, right_change.mean
    return (), present(la, (here, here_change), right_change.reach, means, flags)


def _as_moments_change(la, here: Any, cross: Array, mean_after: Any, flags: Any) -> Moments:
    return _as_moments(la, here[1], cross, mean_after, flags)


def _as_stats_change(la, here: Any, cross: Array, mean_after: Any, flags: Any) -> Stats:
    """d E zz' = d Cov + dm m' + m dm', and likewise for neighbours."""
    (was, moved), (was_after, moved_after) = here, mean_after
    second = moved.covariance + 2 * la.symmetrize(la.outer(moved.mean, was.mean))
    cross = cross + la.outer(moved.mean, was_after) + la.outer(was.mean, moved_after)
    return _where_valid(la, flags, moved.mean, second, cross)


# Drawing, from right to left


def _from_right(la, ends: tuple[Array, Array]) -> Array:
    return ends[1]


def _draw(la, ends: tuple[Array, Array], right: Array, node: Any) -> tuple[Array, Array]:
    sampler, noise = node
    value = nodes.draw(la, sampler, noise, ends[0], right)
    return value, value


def _lead_draw(la, ends: tuple[Array, Array], right: Array) -> tuple[tuple, Array]:
    return (), ends[0]
