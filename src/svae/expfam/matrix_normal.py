r"""Matrix normal inverse Wishart (MNIW) over a linear regression's weights and noise, and its special
case, the normal inverse Wishart (NIW) over a mean and a covariance.

$$ \Sigma \sim \mathrm{IW}(S, \nu), \qquad X \mid \Sigma \sim \mathrm{MN}(M, \Sigma, V^{-1}) $$

is conjugate to $y = X u + \varepsilon$, $\varepsilon \sim N(0, \Sigma)$, $y \in R^n$, $u \in R^m$:

$$ \log p(y \mid u, X, \Sigma) = \langle -\tfrac12\Sigma^{-1}, y y^\top\rangle
   + \langle \Sigma^{-1} X, y u^\top\rangle + \langle -\tfrac12 X^\top\Sigma^{-1}X, u u^\top\rangle
   - \tfrac12\log|\Sigma| - \tfrac n2 \log 2\pi. $$

The fields of the terms are named after what they pair with, so the natural parameters are sums over
(pseudo-)observations: $\sum y y^\top$, $\sum y u^\top$, $\sum u u^\top$ and their number.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from svae import checks, linalg
from svae.expfam import constraints
from svae.expfam.family import LEAST_KEPT, ParameterFamily
from svae.expfam.gaussian import LOG_2PI, GaussianParameters
from svae.linalg import matmul, outer, transpose

LOG_2 = float(np.log(2.0))
LOG_PI = float(np.log(np.pi))
SPD_MINIMUM = 1e-6  # smallest eigenvalue that the unconstrained parametrisation can reach


class MNIWTerms(NamedTuple):
    """Pairs with -Sigma^-1/2, Sigma^-1 X, -X'Sigma^-1 X/2 and -log|Sigma|/2."""

    output: Float[Array, "*batch n n"]
    cross: Float[Array, "*batch n m"]
    input: Float[Array, "*batch m m"]
    weight: Float[Array, "*batch"]


class MNIWParameters(NamedTuple):
    """S, M, V and nu."""

    scale: Float[Array, "*batch n n"]
    mean: Float[Array, "*batch n m"]
    input_precision: Float[Array, "*batch m m"]
    dof: Float[Array, "*batch"]


class MNIWUnconstrained(NamedTuple):
    """The same, as free reals."""

    scale: Float[Array, "*batch p"]
    mean: Float[Array, "*batch n m"]
    input_precision: Float[Array, "*batch q"]
    dof: Float[Array, "*batch"]


class LinearGaussian(NamedTuple):
    """A regression: what an MNIW is a distribution over."""

    weights: Float[Array, "*batch n m"]
    covariance: Float[Array, "*batch n n"]


class MatrixNormalInverseWishart(ParameterFamily):
    """The MNIW family."""

    def infer_standard(self, standard: MNIWParameters) -> tuple[Float[Array, "*batch"], MNIWTerms]:
        """E Sigma^-1 = nu S^-1;  E X'Sigma^-1 X = n V^-1 + nu M'S^-1 M."""
        scale, mean, input_precision, dof = standard
        n, m = mean.shape[-2:]
        scale_inverse, scale_log_det = linalg.inverse_and_log_det(scale)
        input_covariance, input_log_det = linalg.inverse_and_log_det(input_precision)

        precision = dof[..., None, None] * scale_inverse
        weighted = matmul(precision, mean)
        quadratic = n * input_covariance + linalg.symmetrize(matmul(transpose(mean), weighted))
        half_dofs = _wishart_half_dofs(dof, n)
        log_precision = n * LOG_2 - scale_log_det + jnp.sum(digamma(half_dofs), axis=-1)
        stats = MNIWTerms(-0.5 * precision, weighted, -0.5 * quadratic, 0.5 * log_precision)

        log_gamma = n * (n - 1) / 4 * LOG_PI + jnp.sum(gammaln(half_dofs), axis=-1)
        log_partition = (
            0.5 * dof * (n * LOG_2 - scale_log_det)
            + log_gamma
            - 0.5 * n * input_log_det
            + 0.5 * n * m * LOG_2PI
        )
        return log_partition, stats

    def sample(self, key: PRNGKeyArray, natural: MNIWTerms) -> LinearGaussian:
        """Precision by Bartlett's decomposition, then the weights given it."""
        scale, mean, input_precision, dof = self.standard_from_natural(natural)
        n = scale.shape[-1]
        chi_key, normal_key, weight_key = jax.random.split(key, 3)
        chi_square = 2 * jax.random.gamma(chi_key, _wishart_half_dofs(dof, n), dtype=dof.dtype)
        below = jnp.tril(jax.random.normal(normal_key, scale.shape, scale.dtype), -1)
        bartlett = below + jnp.sqrt(chi_square)[..., :, None] * linalg.identity_like(scale)
        root = matmul(transpose(linalg.inverse_cholesky(scale)), bartlett)
        covariance = linalg.inverse(matmul(root, transpose(root)))

        noise = jax.random.normal(weight_key, mean.shape, mean.dtype)
        spread = matmul(matmul(linalg.cholesky(covariance), noise), linalg.inverse_cholesky(input_precision))
        return LinearGaussian(mean + spread, covariance)

    def sufficient_stats(self, value: LinearGaussian) -> MNIWTerms:
        """(-Sigma^-1/2, Sigma^-1 X, -X'Sigma^-1 X/2, -log|Sigma|/2)."""
        precision, log_det = linalg.inverse_and_log_det(value.covariance)
        weighted = matmul(precision, value.weights)
        quadratic = linalg.symmetrize(matmul(transpose(value.weights), weighted))
        return MNIWTerms(-0.5 * precision, weighted, -0.5 * quadratic, -0.5 * log_det)

    def natural_from_standard(self, standard: MNIWParameters) -> MNIWTerms:
        """(S + M V M', M V, V, nu + n + m + 1)."""
        scale, mean, input_precision, dof = standard
        n = checks.require_square("scale", scale)
        m = checks.require_square("input_precision", input_precision)
        checks.require_shape("mean", mean, (n, m))
        checks.require_positive_definite("scale", scale)
        checks.require_positive_definite("input_precision", input_precision)
        checks.require_finite("mean", mean)
        checks.require_above("dof", dof, n - 1.0)
        cross = matmul(mean, input_precision)
        output = scale + linalg.symmetrize(matmul(cross, transpose(mean)))
        return MNIWTerms(output, cross, input_precision, dof + (n + m + 1))

    def standard_from_natural(self, natural: MNIWTerms) -> MNIWParameters:
        """S = output - M V M',  M = cross V^-1."""
        output, cross, input_precision, weight = natural
        n, m = cross.shape[-2:]
        input_precision = linalg.symmetrize(input_precision)
        mean = transpose(linalg.solve(input_precision, transpose(cross)))
        scale = linalg.symmetrize(output - matmul(cross, transpose(mean)))
        return MNIWParameters(scale, mean, input_precision, weight - (n + m + 1))

    def advance(self, standard: MNIWParameters, step: MNIWTerms) -> MNIWParameters:
        """Halve the step of each batch entry until it stays within bounds."""

        def halve(carry):
            share, _ = carry
            share = share / 2
            return share, _within_bounds(standard, _moved(standard, step, share))

        whole = jnp.ones_like(standard.dof)
        start = whole, _within_bounds(standard, _moved(standard, step, whole))
        smallest = 2.0**-20
        more = lambda carry: jnp.any(~carry[1] & (carry[0] > smallest))
        share, sound = jax.lax.while_loop(more, lambda carry: _where_unsound(carry, halve(carry)), start)
        return _moved(standard, step, jnp.where(sound, share, 0))

    def standard_from_unconstrained(self, unconstrained: MNIWUnconstrained) -> MNIWParameters:
        """Any reals give valid parameters."""
        scale, mean, input_precision, dof = unconstrained
        return MNIWParameters(
            constraints.spd_from_unconstrained(scale, SPD_MINIMUM),
            mean,
            constraints.spd_from_unconstrained(input_precision, SPD_MINIMUM),
            constraints.above_from_unconstrained(dof, mean.shape[-2] - 1.0),
        )

    def unconstrained_from_standard(self, standard: MNIWParameters) -> MNIWUnconstrained:
        """The inverse."""
        scale, mean, input_precision, dof = standard
        return MNIWUnconstrained(
            constraints.unconstrained_from_spd(scale, SPD_MINIMUM),
            mean,
            constraints.unconstrained_from_spd(input_precision, SPD_MINIMUM),
            constraints.unconstrained_from_above(dof, mean.shape[-2] - 1.0),
        )


def _where_unsound(old: tuple[Array, Array], new: tuple[Array, Array]) -> tuple[Array, Array]:
    """The new share of a step where the old one was too much."""
    sound = old[1]
    return jnp.where(sound, old[0], new[0]), sound | new[1]


def _moved(standard: MNIWParameters, step: MNIWTerms, share: Float[Array, "*batch"]) -> MNIWParameters:
    r"""After `share` of a step $\delta$ of the natural parameters.

    $V' = V + \delta_{uu}$, $M' = M + (\delta_{yu} - M\delta_{uu}) V'^{-1}$ and, with residuals in place of
    outer products lest these cancel,
    $S' = S + \delta_{yy} - \delta_{yu}M^\top - M\delta_{uy} + M\delta_{uu}M^\top - (M'-M)V'(M'-M)^\top$.
    """
    scale, mean, input_precision, dof = standard
    output, cross, inputs, weight = (
        share.reshape(share.shape + (1,) * (x.ndim - share.ndim)) * x for x in step
    )
    new_precision = linalg.symmetrize(input_precision + inputs)
    residual = cross - matmul(mean, inputs)
    change = transpose(linalg.solve(new_precision, transpose(residual)))
    explained = matmul(residual, transpose(mean)) + matmul(mean, transpose(cross))
    new_scale = scale + output - explained - matmul(change, transpose(residual))
    return MNIWParameters(linalg.symmetrize(new_scale), mean + change, new_precision, dof + weight)


def _within_bounds(old: MNIWParameters, new: MNIWParameters) -> Bool[Array, "*batch"]:
    least = old.mean.shape[-2] - 1.0
    return (
        linalg.is_positive_definite(new.scale - LEAST_KEPT * old.scale)
        & linalg.is_positive_definite(new.input_precision - LEAST_KEPT * old.input_precision)
        & (new.dof - least > LEAST_KEPT * (old.dof - least))
    )


def _wishart_half_dofs(dof: Float[Array, "*batch"], size: int) -> Float[Array, "*batch n"]:
    """(nu - i) / 2 for i = 0 .. n-1."""
    return jnp.stack([(dof - i) / 2 for i in range(size)], axis=-1)


class NIWTerms(NamedTuple):
    """Pairs with -Sigma^-1/2, Sigma^-1 mu, -mu'Sigma^-1 mu/2 and -log|Sigma|/2.

    As natural parameters these are the sums of x x' and x over pseudo-observations, the number of them
    that the mean rests on, and the number that the covariance rests on.
    """

    second: Float[Array, "*batch n n"]
    first: Float[Array, "*batch n"]
    mean_weight: Float[Array, "*batch"]
    weight: Float[Array, "*batch"]


class NIWParameters(NamedTuple):
    """S, m, lambda and nu."""

    scale: Float[Array, "*batch n n"]
    mean: Float[Array, "*batch n"]
    confidence: Float[Array, "*batch"]
    dof: Float[Array, "*batch"]


class NIWUnconstrained(NamedTuple):
    """The same, as free reals."""

    scale: Float[Array, "*batch p"]
    mean: Float[Array, "*batch n"]
    confidence: Float[Array, "*batch"]
    dof: Float[Array, "*batch"]


class NormalInverseWishart(ParameterFamily):
    """The NIW family: an MNIW whose regressor is the constant one."""

    regression: MatrixNormalInverseWishart = eqx.field(default=MatrixNormalInverseWishart(), static=True)

    def infer_standard(self, standard: NIWParameters) -> tuple[Float[Array, "*batch"], NIWTerms]:
        """As the MNIW's."""
        log_partition, stats = self.regression.infer_standard(_regression(standard))
        return log_partition, _from_regression_terms(stats)

    def sample(self, key: PRNGKeyArray, natural: NIWTerms) -> GaussianParameters:
        """A mean and a covariance."""
        weights, covariance = self.regression.sample(key, _regression_terms(natural))
        return GaussianParameters(weights[..., 0], covariance)

    def sufficient_stats(self, value: GaussianParameters) -> NIWTerms:
        """(-Sigma^-1/2, Sigma^-1 mu, -mu'Sigma^-1 mu/2, -log|Sigma|/2)."""
        regression = LinearGaussian(value.mean[..., None], value.covariance)
        return _from_regression_terms(self.regression.sufficient_stats(regression))

    def natural_from_standard(self, standard: NIWParameters) -> NIWTerms:
        """(S + lambda m m', lambda m, lambda, nu + n + 2)."""
        scale, mean, confidence, dof = standard
        n = checks.require_square("scale", scale)
        checks.require_shape("mean", mean, (n,))
        checks.require_positive_definite("scale", scale)
        checks.require_finite("mean", mean)
        checks.require_above("confidence", confidence, 0.0)
        checks.require_above("dof", dof, n - 1.0)
        first = confidence[..., None] * mean
        return NIWTerms(scale + outer(first, mean), first, confidence, dof + (n + 2))

    def standard_from_natural(self, natural: NIWTerms) -> NIWParameters:
        """m = first / lambda,  S = second - lambda m m'."""
        second, first, mean_weight, weight = natural
        mean = first / mean_weight[..., None]
        scale = linalg.symmetrize(second - outer(first, mean))
        return NIWParameters(scale, mean, mean_weight, weight - (mean.shape[-1] + 2))

    def advance(self, standard: NIWParameters, step: NIWTerms) -> NIWParameters:
        """As the MNIW."""
        moved = self.regression.advance(_regression(standard), _regression_terms(step))
        scale, mean, input_precision, dof = moved
        return NIWParameters(scale, mean[..., 0], input_precision[..., 0, 0], dof)

    def standard_from_unconstrained(self, unconstrained: NIWUnconstrained) -> NIWParameters:
        """Any reals give valid parameters."""
        scale, mean, confidence, dof = unconstrained
        return NIWParameters(
            constraints.spd_from_unconstrained(scale, SPD_MINIMUM),
            mean,
            constraints.above_from_unconstrained(confidence, 0.0),
            constraints.above_from_unconstrained(dof, mean.shape[-1] - 1.0),
        )

    def unconstrained_from_standard(self, standard: NIWParameters) -> NIWUnconstrained:
        """The inverse."""
        scale, mean, confidence, dof = standard
        return NIWUnconstrained(
            constraints.unconstrained_from_spd(scale, SPD_MINIMUM),
            mean,
            constraints.unconstrained_from_above(confidence, 0.0),
            constraints.unconstrained_from_above(dof, mean.shape[-1] - 1.0),
        )


def _regression(standard: NIWParameters) -> MNIWParameters:
    scale, mean, confidence, dof = standard
    return MNIWParameters(scale, mean[..., None], confidence[..., None, None], dof)


def _regression_terms(terms: NIWTerms) -> MNIWTerms:
    return MNIWTerms(terms.second, terms.first[..., None], terms.mean_weight[..., None, None], terms.weight)


def _from_regression_terms(terms: MNIWTerms) -> NIWTerms:
    return NIWTerms(terms.output, terms.cross[..., 0], terms.input[..., 0, 0], terms.weight)
