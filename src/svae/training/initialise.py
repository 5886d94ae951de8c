"""The graphical model's first posterior, from data that a pre-trained encoder has seen.

Switching and linear dynamics are regressions of each step on the one before, so a variational AR-HMM on
draws of the latent variables finds them: with one state for an LDS, with as many as it wants for an SLDS.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from numpy import ndarray

from svae import arhmm
from svae.expfam import DirichletParameters, MNIWParameters, NIWParameters, Terms
from svae.models import SVAE, Batch
from svae.pgm import LDS, SLDS, LDSGlobals, SLDSGlobals

MOST_SEQUENCES = 100  # that the AR-HMM sees


def draw_latents(model: SVAE, data: Batch, key: PRNGKeyArray) -> list[Float[ndarray, "time latent"]]:
    """Independent draws from the encoder's potentials, step by step; NaN where nothing was observed."""
    present = data.present
    evidence = jax.jit(jax.vmap(model.encoder))(model.likelihood.features(data.filled), present)
    precision = jnp.where(jnp.any(present, axis=-1, keepdims=True), evidence.precision, jnp.nan)
    noise = jax.random.normal(key, precision.shape, precision.dtype)
    drawn = np.asarray(evidence.linear / precision + noise / jnp.sqrt(precision), np.float64)
    return [z[:length] for z, length in zip(drawn, np.asarray(data.lengths), strict=True)]


def regression_prior(pgm: SLDS | LDS) -> arhmm.Regressions:
    """The graphical model's own prior of its dynamics."""
    dynamics = _standard_prior(pgm).dynamics
    first = dynamics if isinstance(pgm, LDS) else jax.tree.map(lambda x: x[0], dynamics)
    return arhmm.Regressions(*(np.asarray(x, np.float64) for x in first))


def transition_prior(pgm: SLDS | LDS) -> arhmm.StickyPrior:
    """As many pseudo-counts for staying, and for leaving in all, as the graphical model's prior has."""
    if isinstance(pgm, LDS):
        return arhmm.StickyPrior()
    leaving = pgm.move * max(pgm.num_states - 1, 1)
    return arhmm.StickyPrior(persistence=pgm.stay, concentration=leaving)


def fit_dynamics(
    pgm: SLDS | LDS,
    series: list[Float[ndarray, "time latent"]],
    seed: int = 0,
    report: Callable[[int, arhmm.Fit], None] = lambda lap, fit: None,
    **settings,
) -> arhmm.Fit:
    """The AR-HMM of latent sequences, with the graphical model's prior."""
    prior = arhmm.Prior(regression_prior(pgm), transition_prior(pgm))
    num_states = 1 if isinstance(pgm, LDS) else pgm.num_states
    return arhmm.fit_arhmm(series, prior, num_states, seed=seed, report=report, **settings)


def parameters_from_arhmm(
    pgm: SLDS | LDS, fit: arhmm.Fit, series: list[Float[ndarray, "time latent"]], weight: float = 1.0
) -> Terms:
    """Standard parameters of the graphical model's posterior, each sequence counted `weight` times.

    States that the AR-HMM does not use stay at their prior. All sums are in double precision.
    """
    n, prior = pgm.latent_dim, jax.tree.map(lambda x: np.asarray(x, np.float64), _standard_prior(pgm))
    stats = fit.stats.total()
    first = np.stack([z[0] for z in series if np.isfinite(z[0]).all()] or [np.zeros(n)])
    starts = arhmm.stats_from_flat(arhmm.outer_features(first, np.ones((len(first), 1))).sum(axis=0), n, 1)
    scale, mean, confidence, dof = prior.initial
    before = arhmm.Regressions(scale, mean[:, None], confidence[None, None], dof)
    scale, mean, confidence, dof = arhmm.posterior(before, _times(starts, weight))
    initial = NIWParameters(scale, mean[:, 0], confidence[0, 0], dof)

    regression = _times(arhmm.stats_from_flat(stats.regression, n, n + 1), weight)
    if isinstance(pgm, LDS):
        only = arhmm.RegressionStats(*(x.sum(axis=0) for x in regression))
        dynamics = arhmm.posterior(arhmm.Regressions(*prior.dynamics), only)
        return _single(LDSGlobals(initial, MNIWParameters(*dynamics)))
    spare = pgm.num_states - len(stats.start)
    pad = lambda x, axes: np.pad(x, [(0, spare)] * axes + [(0, 0)] * (x.ndim - axes))
    regression = arhmm.RegressionStats(*(pad(x, 1) for x in regression))
    dynamics = arhmm.posterior(regression_prior(pgm), regression)
    start = prior.start.concentration + weight * pad(stats.start, 1)
    rows = prior.transition.concentration + weight * pad(stats.counts, 2)
    return _single(
        SLDSGlobals(
            initial, MNIWParameters(*dynamics), DirichletParameters(start), DirichletParameters(rows)
        )
    )


def _standard_prior(pgm: SLDS | LDS) -> Terms:
    return pgm.family.standard_from_natural(pgm.prior())


def _times(stats: arhmm.RegressionStats, weight: float) -> arhmm.RegressionStats:
    return arhmm.RegressionStats(*(weight * x for x in stats))


def _single(standard: Terms) -> Terms:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), standard)
