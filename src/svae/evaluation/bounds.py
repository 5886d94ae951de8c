"""Bounds of the evidence, from log-weights log p(x, z) - log q(z) of samples z from q; in nats.

The samples are the first axis. Bounds are lower bounds on average; the standard errors say how far one
estimate may be from that average.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real
from numpy import ndarray

from svae.checks import require_axes, require_finite

Numbers = ndarray | np.float64  # one number if the samples are the only axis


class BoundEstimate(NamedTuple):
    """A bound for each of what the log-weights have in their other axes. One sample shows no error: NaN."""

    value: Float[Numbers, "..."]
    standard_error: Float[Numbers, "..."]


def evidence_lower_bound(log_weights: Float[ndarray, "samples *rest"]) -> BoundEstimate:
    """E log w, the mean over samples: more of them reduce the error, not the gap to the evidence."""
    w = _checked(log_weights)
    return BoundEstimate(w.mean(axis=0), _error_of_mean(w))


def importance_weighted(log_weights: Float[ndarray, "samples *rest"]) -> BoundEstimate:
    """log (1/n) Σ w: rises to the evidence as samples become more, and is the ELBO with one.

    The error is, to first order, that of the mean weight over the mean weight: trust it only while the
    effective samples are many.
    """
    largest, w = _scaled(_checked(log_weights))
    with np.errstate(divide="ignore", invalid="ignore"):  # all weights zero
        return BoundEstimate(largest + np.log(w.mean(axis=0)), _error_of_mean(w) / w.mean(axis=0))


def effective_sample_size(log_weights: Float[ndarray, "samples *rest"]) -> Float[Numbers, "*rest"]:
    """(Σ w)² / Σ w²: how many samples of equal weight would be worth as much."""
    _, w = _scaled(_checked(log_weights))
    with np.errstate(invalid="ignore"):  # all weights zero
        return w.sum(axis=0) ** 2 / (w**2).sum(axis=0)


def shared_importance_weighted_bound(
    log_weights: Float[ndarray, "samples sequences"], log_ratio: Float[ndarray, "samples"] | None = None
) -> BoundEstimate:
    """log (1/n) Σ_s (p(θ_s) / q(θ_s)) Π_i w_si, of all sequences together.

    Sequences share the parameters θ, so a sample θ_s has one weight: the log-weights of all sequences under
    it are added before the log-mean-exp. `log_ratio` is log p(θ_s) - log q(θ_s). Without it the bound is one
    of the evidence for which q(θ), learned elsewhere, is the prior. A log-weight may itself be an
    `importance_weighted` bound from several z under θ_s.

    With many sequences a single θ_s has all the weight: see `effective_sample_size` of the sums.
    """
    w = _checked(log_weights)
    require_axes("log_weights", w, 2)
    total = w.sum(axis=1)
    if log_ratio is not None:
        ratio = _checked(log_ratio)
        if ratio.shape != total.shape:
            raise ValueError(
                f"log_ratio must have one number for each of {len(total)} samples, got {ratio.shape}"
            )
        total = total + ratio
    return importance_weighted(total)


def nats_per_scalar(
    bounds: Float[ndarray, "sequences"], scalars: Real[ndarray, "sequences"] | int
) -> BoundEstimate:
    """All sequences' bounds over all their numbers: `scalars` is T X of each, if nothing is missing.

    This is the unit of the paper's table of results. There a bound is that of one sample, less the share
    KL(q(θ) ‖ p(θ)) / N of each of N training sequences. The error is that of a test set of independent
    sequences; windows that overlap have a larger one.
    """
    values = _checked(bounds)
    require_axes("bounds", values, 1)
    require_finite("bounds", values)
    sizes = np.broadcast_to(np.asarray(scalars, np.float64), values.shape)
    if not np.all(sizes > 0):
        raise ValueError("every sequence must have at least one scalar")
    ratio = values.sum() / sizes.sum()
    return BoundEstimate(ratio, _error_of_mean(values - ratio * sizes) / sizes.mean())


def _error_of_mean(values: Float[ndarray, "samples *rest"]) -> Float[Numbers, "*rest"]:
    count = np.float64(len(values))
    with np.errstate(divide="ignore", invalid="ignore"):  # one sample, or infinite ones
        return np.sqrt(np.sum((values - values.mean(axis=0)) ** 2, axis=0) / (count - 1) / count)


def _scaled(
    log_weights: Float[ndarray, "samples *rest"],
) -> tuple[Float[Numbers, "*rest"], Float[ndarray, "samples *rest"]]:
    """The largest log-weight, and the weights divided by the largest: exponentials that cannot overflow."""
    largest = log_weights.max(axis=0)
    largest = np.where(np.isfinite(largest), largest, 0)
    return largest, np.exp(log_weights - largest)


def _checked(log_weights: Float[ndarray, "samples *rest"]) -> Float[ndarray, "samples *rest"]:
    """In double precision: single precision has no room for hundredths beside thousands of nats."""
    w = np.asarray(log_weights, np.float64)
    if not w.ndim or not len(w):
        raise ValueError(f"the first axis must hold samples or sequences, got shape {w.shape}")
    if np.isnan(w).any() or np.isposinf(w).any():
        raise ValueError("log-weights and bounds must be numbers or -inf, got NaN or inf")
    return w
