"""What states have to do with labels: those of the model, and of simpler methods on the same latent paths."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy import ndarray

from svae import application, arhmm
from svae.arhmm.local import pad
from svae.arhmm.model import paths
from svae.data import Recordings
from svae.evaluation import score_segmentation
from svae.models import SVAE, Batch
from svae.pgm import SLDS
from svae.states import num_used, runs
from svae.training.artifact import Fitted
from svae.training.build import graph_for
from svae.training.initialise import Series, encoded_paths, fit_dynamics


def usage(states: ndarray) -> dict[str, Any]:
    """Of states (windows, time): how many are in use, and how long they last."""
    lengths = [stop - start for path in states for start, stop in runs(path)]
    return {"states": num_used(np.bincount(states.ravel())), "median_duration": float(np.median(lengths))}


def agreement(fitted: Fitted, training: Recordings, test: Recordings, states: ndarray) -> dict[str, Any]:
    """Normalised mutual information with the labels, of the model's states on the test windows.

    Beside it, for a switching system, that of the second stage's AR-HMM and of k-means, both fitted to the
    latent paths that the model's own encoder gives of training windows, with as many states.
    """
    if any(item.labels is None for item in test):
        return {}
    labels = np.concatenate([item.labels for item in test])
    nmi = lambda found: score_segmentation(labels, np.concatenate(list(found))).nmi
    scores = {"nmi": nmi(states)}
    if not isinstance(fitted.model, SVAE) or not isinstance(fitted.model.pgm, SLDS):
        return scores
    count = fitted.config.dynamics.sequences
    some = np.linspace(0, len(training) - 1, min(max(count, 1), len(training))).round().astype(int)
    known = _series(fitted, [training[int(i)].values for i in some])
    unknown = _series(fitted, [item.values for item in test])
    return scores | {
        "nmi_arhmm": nmi(_arhmm_states(fitted, known, unknown)),
        "nmi_kmeans": nmi(_kmeans_states(fitted, known, unknown)),
    }


def _series(fitted: Fitted, windows: list[ndarray]) -> Series:
    values = np.stack([fitted.standardizer.apply(x) for x in windows])
    batch = Batch(jnp.asarray(values, jnp.float32), jnp.full(len(values), values.shape[1], jnp.int32))
    assert isinstance(fitted.model, SVAE)
    return encoded_paths(fitted.model, batch)


def _arhmm_states(fitted: Fitted, known: Series, unknown: Series) -> list[ndarray]:
    settings = fitted.config.dynamics
    effort = arhmm.Effort(settings.laps, births=settings.births, restarts=settings.restarts)
    graph = graph_for(fitted.config, fitted.prior._replace(num_states=None))
    assert isinstance(graph, SLDS)
    found = fit_dynamics(graph, known, fitted.config.seed, effort)
    # The first frame has no transition
    return [np.concatenate([path[:1], path]) for path in paths(pad(unknown), found.posterior)]


def _kmeans_states(fitted: Fitted, known: Series, unknown: Series) -> list[ndarray]:
    from sklearn.cluster import KMeans

    clusters = KMeans(application.num_states(fitted), n_init=3, random_state=fitted.config.seed)
    clusters.fit(np.concatenate(known))
    return [clusters.predict(path) for path in unknown]
