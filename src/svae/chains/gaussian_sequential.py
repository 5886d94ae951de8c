r"""A Gaussian chain, node after node: each is eliminated when it has no left neighbour any more.

With $J_t$, $h_t$ what is left of a node's potentials and $N_t$ the edge to the next one,

$$ z_t \mid z_{t+1} \sim N(G_t z_{t+1} + g_t,\; C_t), \qquad
   C_t = J_t^{-1},\; G_t = C_t N_t,\; g_t = C_t h_t, $$

which takes $N_t^\top G_t$ from the next node's precision and adds $N_t^\top g_t$ to its linear term. Then,
from right to left, $m_t = g_t + G_t m_{t+1}$, $P_t = C_t + G_t P_{t+1} G_t^\top$ and
$\mathrm{Cov}(z_t, z_{t+1}) = G_t P_{t+1}$. The `..._change` functions are the derivatives of both, with the
factors of the first pass: they invert nothing. The formulas are those of `svae.chains.gaussian_nodes` with
one neighbour less.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.chains.gaussian_nodes import log_partition
from svae.chains.gaussian_records import (
    Chain,
    Moments,
    Potentials,
    Stats,
    as_moments,
    as_stats,
    own_information,
    potentials,
    wanted,
)
from svae.kernels.scan import Loop, Read, Scan


class Conditionals(NamedTuple):
    """z_t | z_{t+1} ~ N(gain z_{t+1} + offset, covariance)."""

    gain: Float[Array, "*time n n"]
    offset: Float[Array, "*time n"]
    covariance: Float[Array, "*time n n"]


class Factors(NamedTuple):
    """What `change` is made of."""

    conditionals: Conditionals
    moments: Moments


def stats(scan: Scan, chain: Chain) -> tuple[Float[Array, ""], Stats]:
    """Log-partition (less log(2 pi)/2 for each variable) and expected statistics."""
    total, conditionals = _eliminated(scan, chain)
    return total, _restored(scan, chain, conditionals, as_stats, wanted(chain.first.shape[0]))


def moments(scan: Scan, chain: Chain) -> tuple[Float[Array, ""], Factors]:
    """Log-partition, moments, and what `change` needs."""
    total, conditionals = _eliminated(scan, chain)
    return total, Factors(conditionals, _restored(scan, chain, conditionals, as_moments))


def change(scan: Scan, factors: Factors, given: Chain, present: Callable, kept: Any) -> Any:
    """How the moments answer a change of the potentials, in the form that is wanted."""
    time = given.first.shape[0]
    rows = partial(_rows, time)
    (gain, offset, covariance), was = factors
    forward = Loop(_begin, _eliminate_change, _end)
    shift = scan(forward, 1, time, _size(given), (rows((gain, offset)), _potentials(given)))[1]
    backward = Loop(_begin_change, partial(_restore_change, present), _end, reverse=True, kept=kept)
    nodes = rows((gain, covariance)), rows(shift), rows(was), _flags(given)
    return scan(backward, 1, time, _size(given), nodes)[1]


def draw(scan: Scan, chain: Chain, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    """A path, an affine map of the noise."""
    time = noise.shape[0]
    sampler = scan(Loop(_begin, _eliminate_to_sample, _end), 1, time, _size(chain), _potentials(chain))[1]
    backward = Loop(lambda la, size: _vector(size), _draw, _end, reverse=True)
    return scan(backward, 1, time, _size(chain), _rows(time, (*sampler, noise)))[1]


def _eliminated(scan: Scan, chain: Chain) -> tuple[Float[Array, ""], Conditionals]:
    loop = Loop(_begin, _eliminate, lambda la, size, front: (front.log_partition, None))
    total, conditionals = scan(loop, 1, chain.first.shape[0], _size(chain), _potentials(chain))
    return jnp.sum(total), conditionals


def _restored(
    scan: Scan, chain: Chain, conditionals: Conditionals, present: Callable, kept: Any = None
) -> Any:
    time = chain.first.shape[0]
    loop = Loop(_begin_back, partial(_restore, present), _end, reverse=True, kept=kept)
    return scan(loop, 1, time, _size(chain), (_rows(time, conditionals), _flags(chain)))[1]


# What the loops read


def _rows(time: int, record: Any) -> Any:
    return jax.tree.map(lambda x: Read(x, time), record)


def _size(chain: Chain) -> Read:
    """A matrix, to have its size."""
    return Read(chain.second[:1], 1)


def _padded_flags(chain: Chain) -> Array:
    return jnp.pad(chain.valid[: chain.first.shape[0]], (0, 1))


def _flags(chain: Chain) -> tuple[Read, Read]:
    flags, time = _padded_flags(chain), chain.first.shape[0]
    return Read(flags, time), Read(flags, time, 1)


def _potentials(chain: Chain) -> Potentials:
    return potentials(chain, _padded_flags(chain), chain.first.shape[0], 0)


# Elimination, from left to right


class _Front(NamedTuple):
    """What was sent to the present node, and what was integrated."""

    precision: Array
    linear: Array
    log_partition: Array


def _matrix(size: Array) -> Array:
    return jnp.zeros_like(size)


def _vector(size: Array) -> Array:
    return jnp.zeros_like(size, shape=size.shape[:-1])


def _begin(la, size: Array) -> _Front:
    return _Front(_matrix(size), _vector(size), jnp.zeros_like(size, shape=size.shape[:-2]))


def _end(la, size: Array, state: Any) -> tuple[tuple, None]:
    return (), None


def _eliminate(la, size: Array, front: _Front, given: Potentials) -> tuple[_Front, Conditionals]:
    precision, linear, edge = own_information(la, given, alone=1.0)
    linear = linear + front.linear
    covariance, log_det = la.inverse_and_log_det(precision - front.precision)
    gain, offset = la.matmul(covariance, edge), la.matvec(covariance, linear)
    own = log_partition(la, linear, offset, log_det)
    return _sent(la, edge, gain, offset, front.log_partition + own), Conditionals(gain, offset, covariance)


def _sent(la, edge: Array, gain: Array, offset: Array, log_partition: Array) -> _Front:
    back = la.transpose(edge)
    return _Front(la.symmetric(la.matmul(back, gain)), la.matvec(back, offset), log_partition)


def _eliminate_change(la, size: Array, front: _Front, node: Any) -> tuple[_Front, tuple]:
    """dG = C (dN - dJ G), dg = C (dh - dJ g); what C is applied to is enough to go on."""
    (gain, offset), given = node
    precision, linear, edge = own_information(la, given, alone=0.0)
    precision, linear = precision - front.precision, linear + front.linear
    edge_shift = edge - la.matmul(precision, gain)
    linear_shift = linear - la.matvec(precision, offset)
    gain_t, edge_t = la.transpose(gain), la.transpose(edge)
    sent = _Front(
        la.symmetric(la.matmul(gain_t, edge_shift) + la.matmul(edge_t, gain)),
        la.matvec(gain_t, linear_shift) + la.matvec(edge_t, offset),
        front.log_partition,
    )
    return sent, (precision, edge_shift, linear_shift)


def _eliminate_to_sample(la, size: Array, front: _Front, given: Potentials) -> tuple[_Front, tuple]:
    """With a root W of the covariance W' W."""
    precision, linear, edge = own_information(la, given, alone=1.0)
    root = la.inverse_cholesky(precision - front.precision)
    covariance = la.matmul(la.transpose(root), root)
    gain, offset = la.matmul(covariance, edge), la.matvec(covariance, linear + front.linear)
    return _sent(la, edge, gain, offset, front.log_partition), (gain, offset, root)


# Restoring, from right to left


def _begin_back(la, size: Array) -> tuple[Array, Array]:
    return _vector(size), _matrix(size)


def _restore(present: Callable, la, size: Array, after: tuple, node: Any) -> tuple[tuple, Any]:
    (gain, offset, own), flags = node
    mean_after, covariance_after = after
    mean = offset + la.matvec(gain, mean_after)
    cross = la.matmul(gain, covariance_after)
    covariance = own + la.symmetric(la.matmul(cross, la.transpose(gain)))
    return (mean, covariance), present(la, Moments(mean, covariance, cross), mean_after, flags)


def _begin_change(la, size: Array) -> tuple[tuple, tuple]:
    return _begin_back(la, size), _begin_back(la, size)


def _restore_change(present: Callable, la, size: Array, after: tuple, node: Any) -> tuple[tuple, Any]:
    """dP = dC + dG P' G' + G P' dG' + G dP' G', with P' the next one's, and dC = -C dJ C."""
    (gain, own), (precision, edge_shift, linear_shift), was, flags = node
    (mean_after, covariance_after), (mean_moved, covariance_moved) = after
    d_gain = la.matmul(own, edge_shift)
    mean = la.matvec(own, linear_shift) + la.matvec(d_gain, mean_after) + la.matvec(gain, mean_moved)
    through = la.matmul(gain, covariance_moved)
    gained = la.matmul(d_gain, la.transpose(was.cross))
    lost = la.matmul(la.matmul(own, precision), own)
    covariance = la.symmetric(gained + la.transpose(gained) - lost + la.matmul(through, la.transpose(gain)))
    cross = through + la.matmul(d_gain, covariance_after)
    moved = Moments(mean, covariance, cross)
    shown = present(la, was.mean, moved, (mean_after, mean_moved), flags)
    return ((was.mean, was.covariance), (mean, covariance)), shown


def _draw(la, size: Array, after: Array, node: Any) -> tuple[Array, Array]:
    gain, offset, root, noise = node
    value = la.matvec(gain, after) + offset + la.matvec(la.transpose(root), noise)
    return value, value
