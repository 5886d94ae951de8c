"""A run folder's results: the model, the segments, a summary and a page to look at."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from svae import application
from svae.data import Recordings
from svae.evaluation import score_segmentation
from svae.report import RecordingView, ReportData, write_report
from svae.segments import write_segments
from svae.states import num_used
from svae.training.artifact import Fitted, save_fitted
from svae.training.checkpoint import read_metrics, write_json

MOST_SHOWN = 8  # recordings in the report


def write_results(
    fitted: Fitted, recordings: Recordings, folder: Path, title: str, seconds: float
) -> dict[str, Any]:
    """Write everything that a user wants to find in the run folder; returns the summary."""
    folder = Path(folder)
    save_fitted(fitted, folder / "model")
    metrics = pd.DataFrame(read_metrics(folder / "metrics.ndjson"))
    summary: dict[str, Any] = {
        "recordings": len(recordings),
        "frames": int(sum(recordings.lengths)),
        "channels": recordings.num_features,
        "elbo": _last_bound(metrics),
        "score": application.score(fitted, recordings),
        "ending": fitted.ending,
        "seconds": round(seconds, 1),
    }
    if fitted.config.model.graph == "lds":
        write_json(folder / "summary.json", summary)
        return summary
    found = application.segment(fitted, recordings)
    usage = _usage(found, found[0].probability.shape[1])
    summary |= {
        "states_used": num_used(usage),
        "converged": float(np.mean([x.converged for x in found])),
        **_scores(recordings, found),
    }
    table = application.table(fitted, recordings, found)
    write_segments(table, folder)
    warnings = advice(summary)
    summary["warnings"] = warnings
    write_json(folder / "summary.json", summary)
    shown = {name: value for name, value in summary.items() if name != "warnings"}
    views = _views(recordings, found, application.encode(fitted, recordings))
    transition = transition_matrix(fitted)
    page = ReportData(title, shown, metrics, views, table, transition, usage, warnings)
    write_report(page, folder / "report.html")
    return summary


def advice(summary: dict[str, Any]) -> list[str]:
    """What a user should know before trusting the result."""
    warnings = []
    if summary["states_used"] <= 1:
        warnings.append(
            "The states have collapsed: one explains everything. Train longer before the states are found "
            "(pretrain.steps), give typical_duration, or use fewer latent dimensions."
        )
    if summary["converged"] < 0.5:
        warnings.append(
            f"Inference converged in {summary['converged']:.0%} of the recordings: state probabilities are "
            "approximate. Raise joint.max_sweeps."
        )
    if summary["ending"] == "interrupted":
        warnings.append("Training was interrupted; svae resume goes on.")
    return warnings


def transition_matrix(fitted: Fitted) -> np.ndarray:
    """Expected transition probabilities; independent draws for a mixture."""
    model = fitted.model
    standard = model.pgm.family.standard_from_unconstrained(model.parameters)
    if fitted.config.model.graph == "mixture":
        weights = np.asarray(standard.weights.concentration)
        return np.tile(weights / weights.sum(), (len(weights), 1))
    rows = np.asarray(standard.transition.concentration, np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


def _usage(found: list[application.States], num_states: int) -> np.ndarray:
    counts = np.bincount(np.concatenate([x.states for x in found]), minlength=num_states)
    return counts / counts.sum()


def _last_bound(metrics: pd.DataFrame) -> float | None:
    if "elbo" not in metrics:
        return None
    joint = metrics[(metrics["stage"] == "joint") & metrics["elbo"].notna()]
    return float(joint["elbo"].iloc[-1]) if len(joint) else None


def _scores(recordings: Recordings, found: list[application.States]) -> dict[str, float]:
    if any(item.labels is None for item in recordings):
        return {}
    labels = np.concatenate([item.labels for item in recordings])
    return score_segmentation(labels, np.concatenate([x.states for x in found]))._asdict()


def _views(
    recordings: Recordings, found: list[application.States], latents: list[application.Path]
) -> list[RecordingView]:
    together = zip(recordings, found, latents, strict=True)
    return [
        RecordingView(
            item.name,
            item.values,
            recordings.channels,
            recordings.rate,
            segmentation.states,
            segmentation.probability,
            path.mean,
            path.deviation,
            item.labels,
            recordings.label_names,
        )
        for item, segmentation, path in list(together)[:MOST_SHOWN]
    ]
