r"""Linear regressions with unknown weights and noise, one for each state.

$$ (X_k, \Lambda_k) \sim \mathrm{MNIW}(B, M, V, \nu), \qquad
   z_t \mid p_t, k_t = k \sim N(X_k p_t, \Lambda_k^{-1}), \qquad p_t = [z_{t-1}; 1] $$

Everything is a sum over time: statistics of sequences, batches and merged states add.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import gammaln, psi

LOG_2PI = float(np.log(2 * np.pi))


class RegressionStats(NamedTuple):
    """Sums of outer products weighted by how much each state is responsible, and of the weights."""

    outputs: Float[ndarray, "*k n n"]  # sum r z z'
    cross: Float[ndarray, "*k n m"]  # sum r z p'
    inputs: Float[ndarray, "*k m m"]  # sum r p p'
    weight: Float[ndarray, "*k"]  # sum r

    @property
    def flat(self) -> Float[ndarray, "*k size"]:
        """All of them as one vector for each state; of symmetric matrices the upper triangle."""
        cross = self.cross.reshape(*self.weight.shape, math.prod(self.cross.shape[-2:]))
        return np.concatenate(
            [_triangle(self.outputs), cross, _triangle(self.inputs), self.weight[..., None]], axis=-1
        )


class Regressions(NamedTuple):
    """Parameters of one MNIW for each state (or of the prior, without the axis of states)."""

    scale: Float[ndarray, "*k n n"]
    mean: Float[ndarray, "*k n m"]
    input_precision: Float[ndarray, "*k m m"]
    dof: Float[ndarray, "*k"]


def outer_features(
    outputs: Float[ndarray, "frames n"], inputs: Float[ndarray, "frames m"]
) -> Float[ndarray, "frames size"]:
    """Each frame's sufficient statistics as a row, so that weighted sums are one matrix product."""
    product = lambda a, b: a[:, :, None] * b[:, None, :]
    products = product(outputs, outputs), product(outputs, inputs), product(inputs, inputs)
    return RegressionStats(*products, np.ones(len(outputs))).flat


def stats_from_flat(flat: Float[ndarray, "*k size"], n: int, m: int) -> RegressionStats:
    """The inverse of `RegressionStats.flat`."""
    sizes = [n * (n + 1) // 2, n * m, m * (m + 1) // 2]
    outputs, cross, inputs, weight = np.split(flat, np.cumsum(sizes), axis=-1)
    return RegressionStats(
        _symmetric(outputs, n), cross.reshape(*flat.shape[:-1], n, m), _symmetric(inputs, m), weight[..., 0]
    )


def _triangle(matrix: Float[ndarray, "*k n n"]) -> Float[ndarray, "*k half"]:
    rows, columns = np.triu_indices(matrix.shape[-1])
    return matrix[..., rows, columns]


def _symmetric(triangle: Float[ndarray, "*k half"], size: int) -> Float[ndarray, "*k n n"]:
    rows, columns = np.triu_indices(size)
    matrix = np.empty((*triangle.shape[:-1], size, size))
    matrix[..., rows, columns] = matrix[..., columns, rows] = triangle
    return matrix


def default_prior(
    innovation: Float[ndarray, "n"], persistence: float = 1.0, confidence: float = 1.0
) -> Regressions:
    """Centred on staying where one is, with noise covariance around diag(`innovation`)."""
    n = len(innovation)
    dof = n + 2.0
    mean = persistence * np.eye(n, n + 1)
    return Regressions(np.diag(innovation) * (dof - n - 1), mean, confidence * np.eye(n + 1), np.array(dof))


def posterior(prior: Regressions, stats: RegressionStats) -> Regressions:
    """The conjugate update."""
    input_precision = prior.input_precision + stats.inputs
    weighted = prior.mean @ prior.input_precision + stats.cross
    mean = np.linalg.solve(input_precision, np.swapaxes(weighted, -1, -2))
    mean = np.swapaxes(mean, -1, -2)
    base = prior.scale + prior.mean @ prior.input_precision @ prior.mean.T
    scale = base + stats.outputs - mean @ np.swapaxes(weighted, -1, -2)
    scale = (scale + np.swapaxes(scale, -1, -2)) / 2
    return Regressions(scale, mean, input_precision, np.asarray(prior.dof + stats.weight))


def _log_det(matrices: Float[ndarray, "*k n n"]) -> Float[ndarray, "*k"]:
    try:
        root = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        root = np.full_like(matrices, np.nan)
    if np.isnan(root).any():
        raise FloatingPointError(
            "a covariance in the AR-HMM is not positive definite; are the series centred and scaled?"
        )
    return np.asarray(2 * np.sum(np.log(np.diagonal(root, axis1=-2, axis2=-1)), axis=-1))


def log_normaliser(q: Regressions) -> Float[ndarray, "*k"]:
    """log Z of each MNIW; differences of these are the evidence of data."""
    n, m = q.mean.shape[-2:]
    half = (q.dof[..., None] + 1 - np.arange(1, n + 1)) / 2
    wishart = n * (n - 1) / 4 * np.log(np.pi) + q.dof * n / 2 * np.log(2) + np.sum(gammaln(half), axis=-1)
    normal = n * m / 2 * LOG_2PI - n / 2 * _log_det(q.input_precision)
    return np.asarray(wishart - q.dof / 2 * _log_det(q.scale) + normal)


def log_evidence(prior: Regressions, stats: RegressionStats) -> Float[ndarray, "*k"]:
    """log p(outputs | inputs) of the frames behind `stats`, parameters integrated out."""
    n = stats.outputs.shape[-1]
    gained = log_normaliser(posterior(prior, stats)) - log_normaliser(prior)
    return np.asarray(gained - stats.weight * n / 2 * LOG_2PI)


def natural_from_regressions(q: Regressions) -> Float[ndarray, "k size"]:
    """Expected log-likelihood as an inner product with `outer_features`: its coefficients."""
    n = q.mean.shape[-2]
    precision = q.dof[:, None, None] * np.linalg.inv(q.scale)
    weighted = precision @ q.mean
    quadratic = n * np.linalg.inv(q.input_precision) + np.swapaxes(q.mean, -1, -2) @ weighted
    half = (q.dof[:, None] - np.arange(n)) / 2
    log_precision = np.sum(psi(half), axis=-1) + n * np.log(2) - _log_det(q.scale)
    constant = 0.5 * log_precision - n / 2 * LOG_2PI
    # What lies off the diagonal of a symmetric matrix counts twice, and is stored once
    twice = lambda x: x * (2 - np.eye(x.shape[-1]))
    return RegressionStats(-0.5 * twice(precision), weighted, -0.5 * twice(quadratic), constant).flat
