"""The graphical model's first posterior, from data that a pre-trained encoder has seen.

Switching and linear dynamics are regressions of each step on the one before, so a variational AR-HMM on
the encoded paths finds them: with one state for an LDS, with as many as it wants for an SLDS. An HMM is an
AR-HMM that does not look back. Where a jumping SLDS jumps, and how long states of a semi-Markov one last, the
AR-HMM's most likely states say. A mixture of normals is fitted to the encoded points as they are.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from svae import arhmm
from svae.chains import SemiMarkovTerms
from svae.expfam import DirichletParameters, MNIWParameters, NIWParameters, Terms, add
from svae.models import SVAE, Batch
from svae.pgm import (
    HMM,
    LDS,
    SLDS,
    GaussianMixture,
    GraphicalModel,
    HMMGlobals,
    JumpingSLDS,
    JumpingSLDSGlobals,
    LDSGlobals,
    MixtureGlobals,
    PlacedSLDS,
    SemiMarkovSLDS,
    SemiMarkovSLDSGlobals,
    SLDSGlobals,
    priors,
)

NEVER = 1e8  # pseudo-observations behind weights of zero on the step before

Series = list[Float[ndarray, "_ latent"]]
ChainGraph = LDS | HMM | SLDS | JumpingSLDS | SemiMarkovSLDS  # what the AR-HMM finds


def encoded_paths(model: SVAE, data: Batch) -> Series:
    """The means of the encoder's potentials, step by step; NaN where nothing was observed.

    Not draws: noise that is independent from step to step hides small movements, and the noise of the
    dynamics is learned later, when the potentials' own uncertainty is accounted for.
    """
    evidence = eqx.filter_jit(SVAE.evidence)(model, data)
    precision = jnp.where(jnp.any(data.present, axis=-1, keepdims=True), evidence.precision, jnp.nan)
    paths = np.asarray(evidence.linear / precision, np.float64)
    return [z[:length] for z, length in zip(paths, np.asarray(data.lengths), strict=True)]


def regression_prior(pgm: ChainGraph) -> arhmm.Regressions:
    """The graphical model's own prior of its dynamics, or of what each state emits."""
    prior = standard_prior(pgm)
    if isinstance(pgm, HMM):
        scale, mean, confidence, dof = (np.asarray(x[0], np.float64) for x in prior.emission)
        n = len(mean)
        weights = np.concatenate([np.zeros((n, n)), mean[:, None]], axis=1)
        return arhmm.Regressions(scale, weights, np.diag([NEVER] * n + [float(confidence)]), dof)
    first = prior.dynamics if isinstance(pgm, LDS) else jax.tree.map(lambda x: x[0], prior.dynamics)
    return arhmm.Regressions(*(np.asarray(x, np.float64) for x in first))


def arhmm_prior(pgm: ChainGraph) -> arhmm.Prior:
    """As many pseudo-counts for staying, and for leaving in all, as the graphical model's prior has."""
    if isinstance(pgm, LDS):
        return arhmm.Prior(regression_prior(pgm), arhmm.StickyPrior())
    leaving = pgm.move * max(pgm.num_states - 1, 1)
    sticky = arhmm.StickyPrior(persistence=pgm.stay, concentration=leaving)
    return arhmm.Prior(regression_prior(pgm), sticky, pgm.price)


def innovation_of(series: Series) -> float:
    """Mean variance of a step."""
    steps = np.concatenate([np.diff(z, axis=0) for z in series])
    return float(np.nanmean(np.nanvar(steps, axis=0)))


def shared_dynamics(pgm: SLDS | SemiMarkovSLDS, series: Series, frames: float) -> tuple | None:
    """The prior of a state's dynamics after `frames` frames' worth of what all of them show together.

    Nested tuples, for `SLDS`; None if there is no step to learn from.
    """
    steps = np.concatenate([np.hstack([z[1:], z[:-1], np.ones((len(z) - 1, 1))]) for z in series])
    steps = steps[np.isfinite(steps).all(axis=1)]
    if len(steps) == 0:
        return None
    n = pgm.latent_dim
    flat = arhmm.outer_features(steps[:, :n], steps[:, n:]).sum(axis=0)
    share = min(frames / len(steps), 1.0)
    shown = arhmm.posterior(regression_prior(pgm), _times(arhmm.stats_from_flat(flat, n, n + 1), share))
    return tuple(x.tolist() for x in shown)


def shared_place(series: Series) -> tuple | None:
    """The prior of a state's place, as nested tuples for `PlacedSLDS`: anywhere that paths go."""
    points = np.concatenate(series)
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) == 0:
        return None
    n = points.shape[1]
    spread = np.cov(points.T, bias=True).reshape(n, n) + 1e-6 * np.eye(n)
    return spread.tolist(), points.mean(axis=0).tolist(), priors.WEAK, n + 2.0


def fit_dynamics(
    pgm: ChainGraph,
    series: Series,
    seed: int = 0,
    effort: arhmm.Effort | None = None,
    report: Callable[[int, arhmm.Fit], None] = lambda lap, fit: None,
) -> arhmm.Fit:
    """The AR-HMM of latent sequences, with the graphical model's prior and no more states than it has."""
    num_states = 1 if isinstance(pgm, LDS) else pgm.num_states
    effort = (arhmm.Effort() if effort is None else effort)._replace(most_states=num_states)
    return arhmm.fit_arhmm(series, arhmm_prior(pgm), num_states, seed=seed, effort=effort, report=report)


def fit_mixture(pgm: GaussianMixture, series: Series, weight: float = 1.0, seed: int = 0) -> MixtureGlobals:
    """Standard parameters of a variational Gaussian mixture of all steps, most used component first."""
    from sklearn.mixture import BayesianGaussianMixture

    points = np.concatenate(series)
    points = points[np.isfinite(points).all(axis=1)]
    prior = jax.tree.map(np.asarray, standard_prior(pgm)).emission
    found = BayesianGaussianMixture(
        n_components=min(pgm.num_states, len(points)),
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=pgm.concentration,
        mean_precision_prior=float(prior.confidence[0]),
        mean_prior=prior.mean[0],
        degrees_of_freedom_prior=float(prior.dof[0]),
        covariance_prior=prior.scale[0],
        max_iter=500,
        random_state=seed,
    ).fit(points)
    share = found.predict_proba(points)
    order = np.argsort(-share.sum(axis=0))
    share = np.pad(share[:, order], [(0, 0), (0, pgm.num_states - len(order))])
    features = arhmm.outer_features(points, np.ones((len(points), 1)))
    emission = _niw_posterior(jax.tree.map(lambda x: x[0], prior), share.T @ features, weight)
    counts = pgm.concentration + weight * share.sum(axis=0)
    return _single(MixtureGlobals(emission, DirichletParameters(counts)))


def parameters_from_arhmm(pgm: ChainGraph, fit: arhmm.Fit, series: Series, weight: float = 1.0) -> Terms:
    """Standard parameters of the graphical model's posterior, each sequence counted `weight` times.

    States that the AR-HMM does not use stay at their prior. All sums are in double precision.
    """
    n, prior = pgm.latent_dim, jax.tree.map(lambda x: np.asarray(x, np.float64), standard_prior(pgm))
    stats = fit.total
    regression = arhmm.stats_from_flat(stats.regression, n, n + 1)
    if isinstance(pgm, LDS):
        only = arhmm.RegressionStats(*(weight * x.sum(axis=0) for x in regression))
        dynamics = arhmm.posterior(arhmm.Regressions(*prior.dynamics), only)
        return _single(LDSGlobals(_first_steps(prior.initial, series, weight), _mniw(dynamics)))
    spare = pgm.num_states - len(stats.start)
    pad = lambda x, axes: np.pad(x, [(0, spare)] * axes + [(0, 0)] * (x.ndim - axes))
    regression = arhmm.RegressionStats(*(pad(x, 1) for x in regression))
    if isinstance(pgm, SemiMarkovSLDS):
        moving = _mniw(arhmm.posterior(regression_prior(pgm), _times(regression, weight)))
        initial = _first_steps(prior.initial, series, weight)
        dwells = _with_dwells(pgm, fit, series, pgm.price * weight)
        return _single(dwells._replace(initial=initial, dynamics=moving))
    counted = pgm.price * weight
    start = DirichletParameters(prior.start.concentration + counted * pad(stats.start, 1))
    rows = DirichletParameters(prior.transition.concentration + counted * pad(stats.counts, 2))
    if isinstance(pgm, HMM):
        here = arhmm.RegressionStats(
            regression.outputs,
            regression.cross[..., -1:],
            regression.inputs[..., -1:, -1:],
            regression.weight,
        )
        emission = _niw_posterior(jax.tree.map(lambda x: x[0], prior.emission), here.flat, weight)
        return _single(HMMGlobals(emission, start, rows))
    if isinstance(pgm, JumpingSLDS):
        stay, jump = (
            _mniw(arhmm.posterior(regression_prior(pgm), _times(x, weight))) for x in _ways(pgm, fit, series)
        )
        return _single(JumpingSLDSGlobals(_first_places(pgm, fit, series, weight), stay, jump, start, rows))
    dynamics = arhmm.posterior(regression_prior(pgm), _times(regression, weight))
    if isinstance(pgm, PlacedSLDS):
        initial = _first_places(pgm, fit, series, weight)
    else:
        initial = _first_steps(prior.initial, series, weight)
    return _single(SLDSGlobals(initial, _mniw(dynamics), start, rows))


def standard_prior(pgm: GraphicalModel) -> Terms:
    """The prior's standard parameters."""
    return pgm.family.standard_from_natural(pgm.prior())


def _ways(
    pgm: JumpingSLDS, fit: arhmm.Fit, series: Series
) -> tuple[arhmm.RegressionStats, arhmm.RegressionStats]:
    """Statistics of the steps that stay in each state and of those that jump to it, by most likely paths."""
    n, sequences = pgm.latent_dim, arhmm.pad(_with_steps(series))
    flat = np.zeros((2, pgm.num_states, sequences.features.shape[-1]))
    for features, path in zip(sequences.features, arhmm.paths(sequences, fit.posterior), strict=True):
        jumped = np.diff(path, prepend=path[:1]) != 0
        np.add.at(flat, (jumped.astype(int), path), features[: len(path)])
    stay, jump = (arhmm.stats_from_flat(x, n, n + 1) for x in flat)
    return stay, jump


def _first_places(
    pgm: JumpingSLDS | PlacedSLDS, fit: arhmm.Fit, series: Series, weight: float
) -> NIWParameters:
    """Where paths begin, by the state of their first step."""
    prior, series = standard_prior(pgm).initial, _with_steps(series)
    paths = arhmm.paths(arhmm.pad(series), fit.posterior)
    first, states = np.stack([z[0] for z in series]), np.array([path[0] for path in paths])
    known = np.isfinite(first).all(axis=1)
    features = arhmm.outer_features(first[known], np.ones((known.sum(), 1)))
    flat = np.zeros((pgm.num_states, features.shape[1]))
    np.add.at(flat, states[known], features)
    return _niw_posterior(jax.tree.map(lambda x: x[0], prior), flat, weight)


def _with_dwells(pgm: SemiMarkovSLDS, fit: arhmm.Fit, series: Series, weight: float) -> SemiMarkovSLDSGlobals:
    """The posterior of how most likely states follow each other and last: the prior, and d energy / d theta.

    Segments count as they are seen, those that an end cuts off too; too long ones as the longest that can be.
    """
    size, most = pgm.num_states, pgm.max_dwell
    first, changes, dwells = np.zeros((1, size)), np.zeros((size, size)), np.zeros((size, most))
    for path in arhmm.paths(arhmm.pad(_with_steps(series)), fit.posterior):
        begins = np.flatnonzero(np.diff(path, prepend=-1))
        states, lengths = path[begins], np.diff(begins, append=len(path))
        first[0, states[0]] += weight
        np.add.at(changes, (states[:-1], states[1:]), weight)
        np.add.at(dwells, (states, np.minimum(lengths, most) - 1), weight)
    stats = SemiMarkovTerms(*(jnp.asarray(x, float) for x in (first, changes, dwells)))
    prior = pgm.prior()
    gained = jax.grad(pgm.states_energy)(jax.tree.map(jnp.zeros_like, prior), stats)
    return pgm.family.standard_from_natural(add(prior, gained))


def _with_steps(series: Series) -> Series:
    """Sequences of one frame have none."""
    return [z for z in series if len(z) > 1]


def _first_steps(prior: NIWParameters, series: Series, weight: float) -> NIWParameters:
    """What the first steps of all sequences say about where paths begin."""
    first = np.stack([z[0] for z in series if np.isfinite(z[0]).all()] or [np.zeros(prior.mean.shape[-1])])
    starts = arhmm.outer_features(first, np.ones((len(first), 1))).sum(axis=0)
    return _niw_posterior(prior, starts, weight)


def _niw_posterior(prior: NIWParameters, flat: Float[ndarray, "*k size"], weight: float) -> NIWParameters:
    """A normal's conjugate update: the regression on a constant."""
    scale, mean, confidence, dof = (np.asarray(x, np.float64) for x in prior)
    before = arhmm.Regressions(scale, mean[:, None], confidence[None, None], dof)
    after = arhmm.posterior(before, _times(arhmm.stats_from_flat(flat, len(mean), 1), weight))
    q = _mniw(after)
    return NIWParameters(q.scale, q.mean[..., 0], q.input_precision[..., 0, 0], q.dof)


def _times(stats: arhmm.RegressionStats, weight: float) -> arhmm.RegressionStats:
    return arhmm.RegressionStats(*(weight * x for x in stats))


def _mniw(q: arhmm.Regressions) -> MNIWParameters:
    return MNIWParameters(*(jnp.asarray(x) for x in q))


def _single(standard: Terms) -> Terms:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), standard)
