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
from svae.chains import gaussian_sequential
from svae.chains.gaussian_nodes import Conditional, Neighbours, Node
from svae.chains.gaussian_records import (
    Chain,
    Moments,
    Potentials,
    Stats,
    as_moments,
    as_moments_change,
    as_stats,
    as_stats_change,
    own_information,
    potentials,
    wanted,
)
from svae.kernels.scan import Loop, Read, Scan


class Way(NamedTuple):
    """How loops are run, how many nodes a chunk has, and the longest chain that is not cut any more."""

    scan: Scan
    size: int
    uncut: int


class Level(NamedTuple):
    """Conditionals of nodes that were eliminated; moments of all, and covariances with a chunk's first."""

    eliminated: Conditional
    moments: Moments
    reach: Float[Array, "time n n"]


class Levels(NamedTuple):
    """What `change` needs: the levels that were cut, and the chain that was left."""

    cut: list[Level]
    uncut: gaussian_sequential.Factors

    @property
    def moments(self) -> Moments:
        """Those of the whole chain."""
        return self.cut[0].moments if self.cut else self.uncut.moments


class _Layout(NamedTuple):
    """Chunk c has a first node, `stride * c`, and the `length` nodes after it."""

    chunks: int
    length: int
    stride: int


def _layout(way: Way, chain: Chain) -> _Layout:
    return _Layout(-(-chain.first.shape[0] // way.size), way.size - 1, way.size)


def _is_uncut(way: Way, chain: Chain) -> bool:
    return chain.first.shape[0] <= max(way.uncut, 1)


def stats(way: Way, chain: Chain) -> tuple[Float[Array, ""], Stats]:
    """Log-partition (less log(2 pi)/2 for each variable) and expected statistics."""
    if _is_uncut(way, chain):
        return gaussian_sequential.stats(way.scan, chain)
    log_partition, eliminated, below = _down(way, chain)
    kept = wanted(chain.first.shape[0])
    return log_partition, _up(way, chain, eliminated, below.moments, _only(as_stats), kept)


def moments(way: Way, chain: Chain) -> tuple[Float[Array, ""], Levels]:
    """Log-partition and, level by level, what `change` needs."""
    if _is_uncut(way, chain):
        log_partition, factors = gaussian_sequential.moments(way.scan, chain)
        return log_partition, Levels([], factors)
    log_partition, eliminated, below = _down(way, chain)
    found, reach = _up(way, chain, eliminated, below.moments, _with_reach(as_moments))
    return log_partition, Levels([Level(eliminated, found, reach), *below.cut], below.uncut)


def change(way: Way, levels: Levels, given: Chain) -> Stats:
    """How the statistics answer a change of the potentials."""
    return _change(way, levels, given, as_stats_change, wanted(given.first.shape[0]))


def _change(way: Way, levels: Levels, given: Chain, present: Callable, kept: Any) -> Any:
    if not levels.cut:
        return gaussian_sequential.change(way.scan, levels.uncut, given, present, kept)
    (eliminated, own, reach), below = levels.cut[0], levels._replace(cut=levels.cut[1:])
    layout = _layout(way, given)
    conditional = _inner(eliminated, layout)
    loop = Loop(_begin, _eliminate_change, _end)
    front, moved = way.scan(loop, *layout[:2], _start(given, layout), (conditional, _nodes(given, layout)))
    coarse = _first_nodes(given, layout, front, alone=0.0)
    coarse_change = _change(way, below, coarse, as_moments_change, None)
    restore, lead = partial(_restore_change, present), partial(_lead_change, present)
    loop = Loop(_around_change, restore, lead, reverse=True, kept=kept)
    flags = _flags(given, layout)
    constants = _bounds(below.moments), _bounds(coarse_change), _lead_flags(flags, layout)
    was = jax.tree.map(lambda x: Read(x, layout.stride, 1), (own, reach))
    nodes_ = conditional, _inner(moved, layout), was, _own_flags(flags, layout)
    return way.scan(loop, *layout[:2], constants, nodes_)[1]


def draw(way: Way, chain: Chain, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    """A path, an affine map of the noise."""
    if _is_uncut(way, chain):
        return gaussian_sequential.draw(way.scan, chain, noise)
    layout = _layout(way, chain)
    loop = Loop(_begin, _eliminate_to_sample, _end)
    front, sampler = way.scan(loop, *layout[:2], _start(chain, layout), _nodes(chain, layout))
    ends = draw(way, _first_nodes(chain, layout, front), noise[:: layout.stride])
    loop = Loop(_from_right, _draw, _lead_draw, reverse=True)
    own = Read(noise, layout.stride, 1)
    values = way.scan(loop, *layout[:2], (Read(ends, 1), Read(ends, 1, 1)), (_inner(sampler, layout), own))[1]
    return values[: noise.shape[0]]


def _down(way: Way, chain: Chain) -> tuple[Float[Array, ""], Conditional, Levels]:
    """Eliminate all nodes but the chunks' first; give their conditionals, and all about the others."""
    layout = _layout(way, chain)
    loop = Loop(_begin, _eliminate, _end)
    front, eliminated = way.scan(loop, *layout[:2], _start(chain, layout), _nodes(chain, layout))
    rest, below = moments(way, _first_nodes(chain, layout, front))
    return jnp.sum(front.log_partition) + rest, eliminated, below


def _up(
    way: Way, chain: Chain, eliminated: Conditional, coarse: Moments, present: Callable, kept: Any = None
) -> Any:
    """Restore the nodes that were eliminated, and show all in the form wanted."""
    layout = _layout(way, chain)
    loop = Loop(_around, partial(_restore, present), partial(_lead, present), reverse=True, kept=kept)
    flags = _flags(chain, layout)
    constants = _bounds(coarse), _lead_flags(flags, layout)
    return way.scan(loop, *layout[:2], constants, (_inner(eliminated, layout), _own_flags(flags, layout)))[1]


# What the loops read


class _Start(NamedTuple):
    """The edge from a chunk's first node to the second, and whether that is valid."""

    edge: Any
    linked: Any


def _flags(chain: Chain, layout: _Layout) -> Float[Array, "flags"]:
    """Whether each node that some chunk may ask for is there."""
    time = chain.first.shape[0]
    return jnp.pad(chain.valid, (0, layout.chunks * layout.stride + 1 - time))


def _own_flags(flags: Array, layout: _Layout) -> tuple[Read, Read]:
    return Read(flags, layout.stride, 1), Read(flags, layout.stride, 2)


def _lead_flags(flags: Array, layout: _Layout) -> tuple[Read, Read]:
    return Read(flags, layout.stride), Read(flags, layout.stride, 1)


def _nodes(chain: Chain, layout: _Layout) -> Potentials:
    return potentials(chain, _flags(chain, layout), layout.stride, 1)


def _start(chain: Chain, layout: _Layout) -> _Start:
    return _Start(Read(chain.edge, layout.stride), Read(_flags(chain, layout), layout.stride, 1))


def _inner(record: Any, layout: _Layout) -> Any:
    """What an earlier loop gave for the same nodes."""
    return jax.tree.map(lambda x: Read(x, layout.length), record)


def _bounds(coarse: Moments) -> Neighbours:
    """Moments of a chunk's first node and of the next chunk's; the last chunk has none and needs none."""
    mean, covariance, cross = coarse
    both = lambda x: (Read(x, 1), Read(x, 1, 1))
    return Neighbours._make([*both(mean), *both(covariance), Read(cross, 1)])


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


def _present_node(la, front: _Front, given: Potentials, alone: float) -> Node:
    precision, linear, edge = own_information(la, given, alone)
    return Node(precision - front.precision, linear + front.linear, front.edge, edge)


def _eliminate(la, start: _Start, front: _Front, given: Potentials) -> tuple[_Front, Conditional]:
    node = _present_node(la, front, given, alone=1.0)
    own, conditional, messages = nodes.eliminate(la, node)
    return _advance(front, messages, own), conditional


def _eliminate_change(la, start: _Start, front: _Front, given: Any) -> tuple[_Front, Conditional]:
    conditional, potentials = given
    node = _present_node(la, front, potentials, alone=0.0)
    moved, messages = nodes.eliminate_change(la, conditional, node)
    return _advance(front, messages, jnp.zeros_like(front.log_partition)), moved


def _eliminate_to_sample(la, start: _Start, front: _Front, given: Potentials) -> tuple[_Front, nodes.Sampler]:
    node = _present_node(la, front, given, alone=1.0)
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
    here = Moments(own.mean, own.covariance, own.cross_right)
    shown = present(la, here, right.mean, flags, own.cross_left)
    return _Right(own.mean, own.covariance, own.cross_left), shown


def _lead(present: Callable, la, constants: Any, right: _Right) -> tuple[tuple, Any]:
    bounds, flags = constants
    here = Moments(bounds.mean_left, bounds.covariance_left, right.reach)
    return (), present(la, here, right.mean, flags, right.reach)


def _with_reach(present: Callable) -> Callable:
    return lambda *found: (present(*found[:-1]), found[-1])


def _only(present: Callable) -> Callable:
    return lambda *found: present(*found[:-1])


def _around_change(la, constants: Any) -> tuple[_Right, _Right]:
    bounds, changes, _ = constants
    return _around(la, (bounds, ())), _around(la, (changes, ()))


def _restore_change(present: Callable, la, constants: Any, right: Any, node: Any) -> tuple[Any, Any]:
    bounds, changes, _ = constants
    was_right, right_change = right
    conditional, moved, (was, reach), flags = node
    own = nodes.restore_change(
        la,
        conditional,
        _neighbours(bounds, was_right),
        (reach, was.cross),
        moved,
        _neighbours(changes, right_change),
    )
    change = Moments(own.mean, own.covariance, own.cross_right)
    shown = present(la, was.mean, change, (was_right.mean, right_change.mean), flags)
    here = _Right(was.mean, was.covariance, reach)
    return (here, _Right(own.mean, own.covariance, own.cross_left)), shown


def _lead_change(present: Callable, la, constants: Any, right: Any) -> tuple[tuple, Any]:
    bounds, changes, flags = constants
    was_right, right_change = right
    change = Moments(changes.mean_left, changes.covariance_left, right_change.reach)
    return (), present(la, bounds.mean_left, change, (was_right.mean, right_change.mean), flags)


# Drawing, from right to left


def _from_right(la, ends: tuple[Array, Array]) -> Array:
    return ends[1]


def _draw(la, ends: tuple[Array, Array], right: Array, node: Any) -> tuple[Array, Array]:
    sampler, noise = node
    value = nodes.draw(la, sampler, noise, ends[0], right)
    return value, value


def _lead_draw(la, ends: tuple[Array, Array], right: Array) -> tuple[tuple, Array]:
    return (), ends[0]
