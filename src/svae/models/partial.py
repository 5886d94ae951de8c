r"""What a frame says of which only some entries were seen: the decoder knows, the encoder does not.

A network that is used to whole frames takes what stands in for a missing entry at face value. The likelihood
of the entries that were seen needs no such thing. To second order, on average over the posterior q, it is a
potential like the encoder's,

$$ \log p(x^{\mathrm{seen}} \mid z) \approx r^\top z - \tfrac12 z^\top R z, \qquad
   R = E_q[J^\top F J], \quad r = R\, E_q[z] + E_q[J^\top \nabla_o \log p(x^{\mathrm{seen}} \mid o)], $$

with J the Jacobian of the decoder and F the Fisher information about its output o. Inference with these
potentials changes q, so the two alternate, as in an iterated Kalman smoother; where a step lowers the bound,
half of it is tried. With a linear decoder and Gaussian noise the potentials are exact. Whole frames keep
those of the encoder, and frames that are missing altogether have none.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from svae import linalg
from svae.expfam import GaussianTerms
from svae.meanfield import Blocks
from svae.models.base import Batch
from svae.models.svae import SVAE

ROUNDS = 20  # at most
STILL = 0.1  # an average move of the mean, in standard deviations, that ends the rounds
SLACK = 1e-3  # of the bound: in single precision its KL is not known better
RIDGE = 1e-5  # of R's diagonal, about the mean: few entries leave directions open, but R must have a root


class _Round(NamedTuple):
    """Potentials, what inference makes of them, and where that leads."""

    potentials: GaussianTerms
    aim: GaussianTerms
    bound: Float[Array, "batch"]
    mean: Float[Array, "batch time n"]
    stats: Blocks


class _State(NamedTuple):
    trial: GaussianTerms
    best: _Round
    rate: Float[Array, "batch"]  # share of the way from the best potentials to their aim
    still: Bool[Array, "batch"]
    rounds: Int[Array, ""]


def partly_seen(batch: Batch) -> Bool[Array, "batch time"]:
    """Frames with both entries that are there and entries that are not."""
    return jnp.any(batch.present, axis=-1) & ~jnp.all(batch.present, axis=-1)


def with_decoder_potentials(model: SVAE, batch: Batch, filled: Float[Array, "batch time features"]) -> Batch:
    """The batch with potentials of its own; the rounds begin from the encoder's view of `filled`."""
    posterior, partial = model.posterior(), partly_seen(batch)
    begin = batch._replace(values=jnp.where(partial[..., None] & ~batch.present, filled, batch.values))
    blocks = model.potentials(begin)
    first = GaussianTerms(blocks[0].first, blocks[0].second)

    def step(state: _State) -> _State:
        inference = model.infer(posterior, batch._replace(potentials=state.trial), state.best.stats)
        stats = inference.solution.stats
        mean = stats[0].first
        covariance = stats[0].second - linalg.outer(mean, mean)
        log_likelihood, potential = expected(model, mean, covariance, batch)
        bound = log_likelihood - inference.kl_local
        better = bound > state.best.bound - SLACK * jnp.abs(state.best.bound)  # not if it is not a number
        aim = _choose(partial, potential, first)
        best = _choose(better, _Round(state.trial, aim, bound, mean, stats), state.best)
        rate = jnp.where(better, 1, state.rate / 2)
        trial = jax.tree.map(lambda x, y: x + _along(rate, x) * (y - x), best.potentials, best.aim)
        total = lambda x: jnp.sum(_choose(partial, x, jnp.zeros_like(x)), axis=(1, 2))
        variance = linalg.diagonal(covariance)
        still = better & (total((mean - state.best.mean) ** 2) < STILL**2 * total(variance))
        return _State(trial, best, rate, still, state.rounds + 1)

    start = lambda potentials, length: model.pgm.start(posterior.inference_stats, potentials, length)
    dtype, count = first.first.dtype, first.first.shape[0]
    lowest = jnp.full(count, jnp.finfo(dtype).min / 2, dtype)
    nowhere = jnp.full_like(first.first, jnp.inf)
    before = _Round(first, first, lowest, nowhere, jax.vmap(start)(blocks, batch.lengths))
    state = _State(first, before, jnp.ones(count, dtype), jnp.zeros(count, bool), jnp.asarray(0))
    going = lambda state: (state.rounds < ROUNDS) & ~jnp.all(state.still)
    return batch._replace(potentials=lax.while_loop(going, step, state).best.potentials)


def expected(
    model: SVAE,
    mean: Float[Array, "batch time n"],
    covariance: Float[Array, "batch time n n"],
    batch: Batch,
) -> tuple[Float[Array, "batch"], GaussianTerms]:
    """E_q log p(x | z) of what was seen, and the potentials r and R.

    The average is that over 2n points, a root of n times the deviation from the mean along each column of a
    root of the covariance: exact up to third order.
    """
    root = linalg.cholesky(mean.shape[-1] * covariance)
    root = jnp.where(jnp.isnan(root), 0, root)  # where rounding has left no covariance, the mean will do
    offsets = jnp.moveaxis(jnp.concatenate([root, -root], axis=-1), -1, 0)
    each = jax.vmap(lambda offset: _at(model, mean + offset, batch))(offsets)
    log_likelihood, slope, precision = jax.tree.map(lambda x: jnp.mean(x, axis=0), each)
    precision = linalg.symmetrize(precision)
    precision = precision + RIDGE * precision * linalg.identity_like(precision)
    return log_likelihood, GaussianTerms(slope + linalg.matvec(precision, mean), -0.5 * precision)


def _at(
    model: SVAE, z: Float[Array, "batch time n"], batch: Batch
) -> tuple[Float[Array, "batch"], Float[Array, "batch time n"], Float[Array, "batch time n n"]]:
    """Log-density of what was seen given z, its slope, and J' F J."""
    present, size = batch.present, z.shape[-1]
    output, push = jax.linearize(model.decoder, z)

    def log_likelihood(output: Array) -> tuple[Array, Array]:
        density = jnp.where(present, model.likelihood.log_density(output, batch.filled), 0)
        return jnp.sum(density), jnp.sum(density, axis=(1, 2))

    slope, total = jax.grad(log_likelihood, has_aux=True)(output)
    directions = jnp.broadcast_to(jnp.eye(size, dtype=z.dtype)[:, None, None, :], (size, *z.shape))
    columns = jax.vmap(push)(directions)  # of J
    informed = jax.vmap(lambda column: model.likelihood.information(output, present, column))(columns)
    dot = lambda pattern, x, y: jnp.einsum(pattern, x, y, precision=linalg.PRECISION)
    return total, dot("ibto,bto->bti", columns, slope), dot("ibto,jbto->btij", columns, informed)


def _along(x: Array, like: Array) -> Array:
    """With as many axes as `like` has."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))


def _choose(mask: Bool[Array, "batch ..."], one: Any, other: Any) -> Any:
    """Leaf by leaf: `one` where the mask is true."""
    return jax.tree.map(lambda x, y: jnp.where(_along(mask, x), x, y), one, other)
