"""A fitted model and recordings as the arrays and tables of a report."""

from pathlib import Path
from typing import Any

import numpy as np

from svae import application
from svae.data import Recordings
from svae.models import SVAE
from svae.report import Certificate, RecordingView, ReportData, Skeleton, StateDynamics
from svae.results.examples import fans, samples
from svae.results.summary import about_run, advice, segmentation, state_usage, training_log
from svae.segments import segments_table
from svae.training.artifact import Fitted

MOST_SHOWN = 8  # recordings


def report_for(fitted: Fitted, recordings: Recordings, folder: Path) -> ReportData:
    """A report of any recordings; the run folder lends its name, its training log and its settings."""
    folder, readings = Path(folder), application.read(fitted, recordings)
    summary = about_run(fitted, recordings, folder, readings)
    return make_page(fitted, recordings, folder, folder.name, summary, readings)


def make_page(
    fitted: Fitted,
    recordings: Recordings,
    folder: Path,
    title: str,
    summary: dict[str, Any],
    readings: list[application.Reading],
) -> ReportData:
    """A report of recordings that are read and summed up already."""
    recordings = application.matched(fitted, recordings)
    settings, found = folder / "config.toml", segmentation(readings)
    return ReportData(
        title,
        summary,
        training_log(folder),
        _views(fitted, recordings, readings),
        application.table(fitted, recordings, found) if found else segments_table((), (), (), None),
        transition_matrix(fitted, found),
        state_usage(found),
        # The page sees from the certificates what converged.
        advice(summary | {"converged": 1.0}, fitted.config.model.num_states),
        dynamics=state_dynamics(fitted),
        linear=linear_dynamics(fitted),
        certificates=[
            Certificate(name, x.certificate.sweeps, x.certificate.residual, x.certificate.converged)
            for name, x in zip(recordings.names, readings, strict=True)
        ],
        fans=fans(fitted, recordings),
        samples=samples(fitted, recordings),
        skeleton=_skeleton(recordings),
        config=settings.read_text(encoding="utf-8") if settings.exists() else "",
    )


def transition_matrix(fitted: Fitted, found: list[application.States]) -> np.ndarray:
    """Expected transition probabilities; independent draws for a mixture, none where there are no states.

    Networks have no such matrix, nor have states that know for how long they have lasted: theirs is how often
    the states that were found follow each other.
    """
    graph = _graph(fitted)
    if graph in (None, "hsmm-slds"):
        return observed_transitions(found)
    if graph in ("lds", "normal"):
        return np.zeros((0, 0))
    standard = _posterior(fitted)
    if graph == "mixture":
        weights = np.asarray(standard.weights.concentration)
        return np.tile(weights / weights.sum(), (len(weights), 1))
    rows = np.asarray(standard.transition.concentration, np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


def observed_transitions(found: list[application.States]) -> np.ndarray:
    """Shares of the states that follow each state; one that nothing follows stays."""
    size = found[0].probability.shape[1] if found else 0
    counts = np.zeros((size, size))
    for x in found:
        np.add.at(counts, (x.states[:-1], x.states[1:]), 1)
    counts += np.diag(counts.sum(axis=1) == 0)
    return counts / counts.sum(axis=1, keepdims=True)


def state_dynamics(fitted: Fitted) -> dict[int, StateDynamics]:
    """Expected dynamics of each state; none for models whose states have no dynamics."""
    if _graph(fitted) not in ("slds", "jslds", "hsmm-slds"):
        return {}
    dynamics = _posterior(fitted).dynamics
    parts = zip(dynamics.mean, dynamics.scale, dynamics.dof, strict=True)
    return {state: _dynamics(*each) for state, each in enumerate(parts)}


def linear_dynamics(fitted: Fitted) -> StateDynamics | None:
    """Expected dynamics of a model that has no states."""
    if _graph(fitted) != "lds":
        return None
    dynamics = _posterior(fitted).dynamics
    return _dynamics(dynamics.mean, dynamics.scale, dynamics.dof)


def _dynamics(mean: Any, scale: Any, dof: Any) -> StateDynamics:
    mean, scale, dof = (np.asarray(x, np.float64) for x in (mean, scale, dof))
    size = len(mean)
    return StateDynamics(mean[:, :size], mean[:, size], scale / (dof - size - 1))


def _graph(fitted: Fitted) -> str | None:
    """None for models that have networks only."""
    settings = fitted.config.model
    return settings.graph if settings.kind == "svae" else None


def _posterior(fitted: Fitted) -> Any:
    assert isinstance(fitted.model, SVAE)
    return fitted.model.pgm.family.standard_from_unconstrained(fitted.model.parameters)


def _skeleton(recordings: Recordings) -> Skeleton | None:
    known = recordings.skeleton
    if known is None:
        return None
    columns = np.zeros((len(known.joints), 3), int)
    columns[list(known.moving)] = np.arange(3 * len(known.moving)).reshape(-1, 3)
    return Skeleton(known.joints, known.parents, columns, known.still)


def _views(
    fitted: Fitted, recordings: Recordings, readings: list[application.Reading]
) -> list[RecordingView]:
    return [
        RecordingView(
            item.name,
            item.values,
            recordings.channels,
            recordings.rate or fitted.rate,
            None if found.states is None else found.states.states,
            None if found.states is None else found.states.probability,
            found.path.mean,
            found.path.deviation,
            item.labels,
            recordings.label_names,
        )
        for item, found in zip(recordings.items[:MOST_SHOWN], readings, strict=False)
    ]
