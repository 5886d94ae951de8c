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

import sys
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae import checks
from svae.chains.forms import Form, batch_size
from svae.chains.gaussian_algorithms import Algorithm, in_chunks, widened
from svae.chains.gaussian_parallel import Way
from svae.chains.gaussian_terms import GaussianChainTerms, without_padding
from svae.chains.padding import Length, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily
from svae.expfam.gaussian import LOG_2PI
from svae.kernels import tiles
from svae.kernels.scan import kernel_scan, plain_scan
from svae.linalg import outer

WHOLE = sys.maxsize
SEQUENTIAL, PARALLEL = Way(plain_scan, 2, WHOLE), Way(plain_scan, 2, 1)  # chunks of two: odd-even reduction
MANY, FULL = 128, 512  # sequences: cutting them doubles the work, and a GPU can be busy without


def kernel_way() -> Way:
    """Chunks, the shorter the fewer sequences there are; their first nodes make a chain that is not cut."""
    batch = batch_size()
    return Way(kernel_scan, 16 if batch < MANY else 32, WHOLE if batch >= FULL else 32)


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
        return without_padding(self._valid(terms), terms)

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

    def _algorithm(self, natural: GaussianChainTerms) -> Algorithm:
        size, dtype = natural.first.shape[1], natural.first.dtype
        if self.form == Form.SEQUENTIAL:
            return in_chunks(SEQUENTIAL)
        if self.form == Form.PARALLEL or size > tiles.LARGEST or not tiles.can_hold(dtype):
            return in_chunks(PARALLEL)
        return widened(in_chunks(kernel_way()), size)
