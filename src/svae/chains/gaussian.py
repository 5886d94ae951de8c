r"""Exact inference in a Gaussian chain with time-varying potentials in information form.

$$ q(z) \propto \exp\Big\{\sum_t \langle h_t, z_t\rangle + \langle W_t, z_t z_t^\top\rangle
   + \sum_{t<T} \langle N_t, z_t z_{t+1}^\top\rangle \Big\} $$

so $J_t = -(W_t + W_t^\top)$ are the diagonal blocks of the joint precision and $-N_t$ the blocks beside
them. Nothing asks that the potentials come from a normalised model: the *expected* log-densities of
variational inference do not.

Both algorithms are block elimination. Integrating out a node o with neighbours e and r leaves

$$ z_o \mid z_e, z_r \sim N(G_e z_e + G_r z_r + g,\; C), \qquad C = J_o^{-1},\;
   G_e = C N_{eo}^\top,\; G_r = C N_{or},\; g = C h_o, $$

adds $-N_{eo} G_e$, $-N_{or}^\top G_r$ to the neighbours' precisions, $N_{eo}\, g$, $N_{or}^\top g$ to their
linear terms, and the new edge $N_{eo} G_r$ between them. Only the order differs: `sequential` goes from
left to right (a node has no left neighbour left), `parallel` takes every second node at once.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from svae import checks, linalg
from svae.chains.odd_even import add_to, interleave, pad_to, split
from svae.chains.padding import Length, choose, valid_steps, zero_padding
from svae.expfam.family import ExponentialFamily
from svae.expfam.gaussian import LOG_2PI
from svae.linalg import identity_like, matmul, matvec, outer, symmetrize, transpose


class GaussianChainTerms(NamedTuple):
    """Pairs with z_t, z_t z_t' and z_t z_{t+1}'."""

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    cross: Float[Array, "time_minus_1 n n"]


class Information(NamedTuple):
    """A chain's potentials: J_t, N_t and h_t."""

    precision: Float[Array, "time n n"]
    edge: Float[Array, "time_minus_1 n n"]
    linear: Float[Array, "time n"]


class Moments(NamedTuple):
    """Means, covariances and Cov(z_t, z_{t+1})."""

    mean: Float[Array, "time n"]
    covariance: Float[Array, "time n n"]
    cross: Float[Array, "time_minus_1 n n"]


class GaussianChain(ExponentialFamily):
    """The family of Gaussian chains; `length` marks padding, `parallel` picks the algorithm."""

    length: Length = None
    parallel: bool = eqx.field(default=False, static=True)

    def infer(self, natural: GaussianChainTerms) -> tuple[Float[Array, ""], GaussianChainTerms]:
        """Log-partition, E z_t, E z_t z_t' and E z_t z_{t+1}'."""
        information = self._information(natural)
        log_partition, moments = (_parallel_smoother if self.parallel else _sequential_smoother)(information)
        num_variables = natural.first.shape[1] * jnp.sum(self._valid(natural), dtype=natural.first.dtype)
        log_partition = log_partition + 0.5 * LOG_2PI * num_variables
        return log_partition, self._zero_padding(_second_moments(moments))

    def sample(self, key: PRNGKeyArray, natural: GaussianChainTerms) -> Float[Array, "time n"]:
        """A path, reparameterised: an affine map of standard normal noise."""
        information = self._information(natural)
        noise = jax.random.normal(key, natural.first.shape, natural.first.dtype)
        path = (_parallel_sampler if self.parallel else _sequential_sampler)(information, noise)
        return zero_padding(self._valid(natural), path)

    def sufficient_stats(self, value: Float[Array, "time n"]) -> GaussianChainTerms:
        """(z_t, z_t z_t', z_t z_{t+1}')."""
        terms = GaussianChainTerms(value, outer(value, value), outer(value[:-1], value[1:]))
        return self._zero_padding(terms)

    def _valid(self, terms: GaussianChainTerms):
        return valid_steps(terms.first.shape[0], self.length)

    def _zero_padding(self, terms: GaussianChainTerms) -> GaussianChainTerms:
        if self.length is None:
            return terms
        valid = self._valid(terms)
        return GaussianChainTerms(
            zero_padding(valid, terms.first),
            zero_padding(valid, terms.second),
            zero_padding(valid[1:], terms.cross),
        )

    def _information(self, natural: GaussianChainTerms) -> Information:
        for name, field, axes in zip(natural._fields, natural, (2, 3, 3), strict=True):
            checks.require_axes(name, field, axes)
        time, size = natural.first.shape
        checks.require_shape("second", natural.second, (time, size, size))
        checks.require_shape("cross", natural.cross, (time - 1, size, size))
        precision = -(natural.second + transpose(natural.second))
        if self.length is None:
            return Information(precision, natural.cross, natural.first)
        valid = self._valid(natural)
        alone = identity_like(precision)  # log-determinant zero, exactly
        return Information(
            choose(valid, precision, alone),
            zero_padding(valid[1:], natural.cross),
            zero_padding(valid, natural.first),
        )


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


def _second_moments(moments: Moments) -> GaussianChainTerms:
    mean, covariance, cross = moments
    return GaussianChainTerms(mean, covariance + outer(mean, mean), cross + outer(mean[:-1], mean[1:]))


def _local_log_partition(linear: Array, offset: Array, log_det: Array) -> Float[Array, ""]:
    """Sum over eliminated nodes of log integral exp(h'z - z'Jz/2), less log(2 pi)/2 for each variable.

    Those are counted at the end: padding adds exactly nothing then.
    """
    return 0.5 * (jnp.sum(linear * offset) - jnp.sum(log_det))


# Sequential: one node after the other.


class _Conditionals(NamedTuple):
    """z_t | z_{t+1} ~ N(gain z_{t+1} + offset, covariance)."""

    gain: Float[Array, "time n n"]
    offset: Float[Array, "time n"]
    covariance: Float[Array, "time n n"]


def _eliminate_forward(information: Information) -> tuple[Float[Array, ""], _Conditionals]:
    precision, edge, linear = information
    time, size = linear.shape

    def step(message, potentials):
        (from_left, shift), (precision, edge, linear) = message, potentials
        linear = linear + shift
        covariance, log_det = linalg.inverse_and_log_det(precision - from_left)
        gain, offset = matmul(covariance, edge), matvec(covariance, linear)
        message = symmetrize(matmul(transpose(edge), gain)), matvec(transpose(edge), offset)
        return message, (_Conditionals(gain, offset, covariance), linear, log_det)

    start = jnp.zeros((size, size), linear.dtype), jnp.zeros(size, linear.dtype)
    _, (conditionals, linear, log_det) = lax.scan(step, start, (precision, pad_to(edge, time), linear))
    return _local_log_partition(linear, conditionals.offset, log_det), conditionals


def _sequential_smoother(information: Information) -> tuple[Float[Array, ""], Moments]:
    log_partition, conditionals = _eliminate_forward(information)

    def step(after, conditional):
        (mean, covariance), (gain, offset, own) = after, conditional
        mean = offset + matvec(gain, mean)
        cross = matmul(gain, covariance)
        covariance = own + symmetrize(matmul(cross, transpose(gain)))
        return (mean, covariance), Moments(mean, covariance, cross)

    start = jax.tree.map(lambda x: jnp.zeros_like(x[0]), (conditionals.offset, conditionals.covariance))
    _, moments = lax.scan(step, start, conditionals, reverse=True)
    return log_partition, moments._replace(cross=moments.cross[:-1])


def _sequential_sampler(information: Information, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    _, (gain, offset, covariance) = _eliminate_forward(information)
    shocks = offset + matvec(linalg.cholesky(covariance), noise)

    def step(after, x):
        gain, shock = x
        value = matvec(gain, after) + shock
        return value, value

    return lax.scan(step, jnp.zeros_like(shocks[0]), (gain, shocks), reverse=True)[1]


# Parallel: every second node at once.


class _Eliminated(NamedTuple):
    """z_o | z_e, z_r ~ N(left z_e + right z_r + offset, covariance) for the odd nodes of one round."""

    left: Float[Array, "odd n n"]
    right: Float[Array, "odd n n"]
    offset: Float[Array, "odd n"]
    covariance: Float[Array, "odd n n"]


def _eliminate_odd(information: Information) -> tuple[Float[Array, ""], _Eliminated, Information]:
    (even, odd), (linear_even, linear_odd) = split(information.precision), split(information.linear)
    edge_left, edge_right = split(information.edge)
    edge_right = pad_to(edge_right, odd.shape[0])  # the last odd node may have no right neighbour

    covariance, log_det = linalg.inverse_and_log_det(odd)
    left, right = matmul(covariance, transpose(edge_left)), matmul(covariance, edge_right)
    offset = matvec(covariance, linear_odd)
    before, after, joined = slice(None, odd.shape[0]), slice(1, None), even.shape[0] - 1
    even = add_to(even, before, -symmetrize(matmul(edge_left, left)))
    even = add_to(even, after, -symmetrize(matmul(transpose(edge_right), right)))
    linear_even = add_to(linear_even, before, matvec(edge_left, offset))
    linear_even = add_to(linear_even, after, matvec(transpose(edge_right), offset))
    rest = Information(even, matmul(edge_left, right)[:joined], linear_even)
    log_partition = _local_log_partition(linear_odd, offset, log_det)
    return log_partition, _Eliminated(left, right, offset, covariance), rest


def _parallel_smoother(information: Information) -> tuple[Float[Array, ""], Moments]:
    if information.linear.shape[0] == 1:
        return _sequential_smoother(information)
    own, eliminated, rest = _eliminate_odd(information)
    log_partition, coarse = _parallel_smoother(rest)
    return own + log_partition, _restore_odd(eliminated, coarse)


def _restore_odd(eliminated: _Eliminated, coarse: Moments) -> Moments:
    left, right, offset, own = eliminated
    count = offset.shape[0]
    before, after = coarse.covariance[:count], pad_to(coarse.covariance[1:], count)
    between = pad_to(coarse.cross, count)
    mean = offset + matvec(left, coarse.mean[:count]) + matvec(right, pad_to(coarse.mean[1:], count))
    cross_left = matmul(before, transpose(left)) + matmul(between, transpose(right))  # Cov(z_e, z_o)
    cross_right = matmul(left, between) + matmul(right, after)  # Cov(z_o, z_r)
    covariance = own + symmetrize(matmul(left, cross_left) + matmul(right, transpose(cross_right)))
    joined = coarse.mean.shape[0] - 1
    return Moments(
        interleave(coarse.mean, mean),
        interleave(coarse.covariance, covariance),
        interleave(cross_left, cross_right[:joined]),
    )


def _parallel_sampler(information: Information, noise: Float[Array, "time n"]) -> Float[Array, "time n"]:
    if information.linear.shape[0] == 1:
        return _sequential_sampler(information, noise)
    _, (left, right, offset, covariance), rest = _eliminate_odd(information)
    noise_even, noise_odd = split(noise)
    even = _parallel_sampler(rest, noise_even)
    count = offset.shape[0]
    odd = offset + matvec(left, even[:count]) + matvec(right, pad_to(even[1:], count))
    return interleave(even, odd + matvec(linalg.cholesky(covariance), noise_odd))
