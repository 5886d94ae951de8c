"""A fitted model and recordings as the arrays and tables of a report."""

from pathlib import Path
from typing import Any

import numpy as np

from svae import application
from svae.data import Recordings
from svae.report import Certificate, RecordingView, ReportData, Skeleton, StateDynamics
from svae.results.examples import fans, samples
from svae.results.summary import about_model, about_states, advice, state_usage, training_log
from svae.training.artifact import Fitted

MOST_SHOWN = 8  # recordings


def report_for(fitted: Fitted, recordings: Recordings, folder: Path) -> ReportData:
    """A report of any recordings; the run folder lends its name, its training log and its settings."""
    folder = Path(folder)
    found = application.segment(fitted, recordings)
    summary = about_model(fitted, recordings, folder) | about_states(recordings, found)
    return make_page(fitted, recordings, folder, folder.name, summary, found)


def make_page(
    fitted: Fitted,
    recordings: Recordings,
    folder: Path,
    title: str,
    summary: dict[str, Any],
    found: list[application.States],
) -> ReportData:
    """A report of recordings that are summed up and segmented already."""
    recordings = application.matched(fitted, recordings)
    settings = folder / "config.toml"
    return ReportData(
        title,
        summary,
        training_log(folder),
        _views(fitted, recordings, found),
        application.table(fitted, recordings, found),
        transition_matrix(fitted),
        state_usage(found),
        # The page sees from the certificates what converged.
        advice(summary | {"converged": 1.0}),
        dynamics=state_dynamics(fitted),
        certificates=[
            Certificate(name, x.sweeps, x.residual, x.converged)
            for name, x in zip(recordings.names, found, strict=True)
        ],
        fans=fans(fitted, recordings),
        samples=samples(fitted, recordings),
        skeleton=_skeleton(recordings),
        config=settings.read_text(encoding="utf-8") if settings.exists() else "",
    )


def transition_matrix(fitted: Fitted) -> np.ndarray:
    """Expected transition probabilities; independent draws for a mixture."""
    standard = _posterior(fitted)
    if fitted.config.model.graph == "mixture":
        weights = np.asarray(standard.weights.concentration)
        return np.tile(weights / weights.sum(), (len(weights), 1))
    rows = np.asarray(standard.transition.concentration, np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


def state_dynamics(fitted: Fitted) -> dict[int, StateDynamics]:
    """Expected dynamics of each state; none for models whose states have no dynamics."""
    if fitted.config.model.graph != "slds":
        return {}
    dynamics = _posterior(fitted).dynamics
    mean, scale = (np.asarray(x, np.float64) for x in (dynamics.mean, dynamics.scale))
    size = mean.shape[1]
    spare = np.asarray(dynamics.dof, np.float64) - size - 1
    return {
        state: StateDynamics(both[:, :size], both[:, size], scale[state] / spare[state])
        for state, both in enumerate(mean)
    }


def _posterior(fitted: Fitted) -> Any:
    return fitted.model.pgm.family.standard_from_unconstrained(fitted.model.parameters)


def _skeleton(recordings: Recordings) -> Skeleton | None:
    known = recordings.skeleton
    if known is None:
        return None
    return Skeleton(known.joints, known.parents, np.arange(3 * len(known.joints)).reshape(-1, 3))


def _views(fitted: Fitted, recordings: Recordings, found: list[application.States]) -> list[RecordingView]:
    shown = recordings.select(recordings.names[:MOST_SHOWN])
    latents = application.encode(fitted, shown)
    return [
        RecordingView(
            item.name,
            item.values,
            recordings.channels,
            recordings.rate or fitted.rate,
            segmentation.states,
            segmentation.probability,
            path.mean,
            path.deviation,
            item.labels,
            recordings.label_names,
        )
        for item, segmentation, path in zip(shown, found[:MOST_SHOWN], latents, strict=True)
    ]
