"""A run in a few numbers, and what to know about them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from svae import application
from svae.data import Recordings
from svae.evaluation import score_segmentation
from svae.states import num_used
from svae.training.artifact import Fitted
from svae.training.checkpoint import read_metrics


def about_run(
    fitted: Fitted, recordings: Recordings, folder: Path, readings: list[application.Reading]
) -> dict[str, Any]:
    """How much there is, and how well the model explains it; of states, if it has some."""
    summary = {
        "recordings": len(recordings),
        "frames": int(sum(recordings.lengths)),
        "channels": recordings.num_features,
        "elbo": _last_bound(training_log(folder)),
        "score": application.per_number(recordings, [x.bound for x in readings]),
        "ending": fitted.ending,
        "converged": float(np.mean([x.certificate.converged for x in readings])),
    }
    found = segmentation(readings)
    if found:
        summary |= {"states_used": num_used(state_usage(found)), **_scores(recordings, found)}
    return summary


def segmentation(readings: list[application.Reading]) -> list[application.States]:
    """The states of all recordings; an empty list if the model has none."""
    return [x.states for x in readings if x.states is not None]


def advice(summary: dict[str, Any], num_states: int) -> list[str]:
    """What a user should know before trusting the result of a model that began with `num_states`."""
    warnings = []
    if num_states > 1 >= summary.get("states_used", num_states):
        warnings.append(
            "The states have collapsed: one explains everything. Train longer before the states are found "
            "(pretrain.steps), give typical_duration, or use fewer latent dimensions."
        )
    if summary["converged"] < 0.5:
        warnings.append(
            f"Inference converged in {summary['converged']:.0%} of the recordings: state probabilities are "
            "approximate where it did not."
        )
    if summary["ending"] == "interrupted":
        warnings.append("Training was interrupted; svae resume goes on.")
    return warnings


def training_log(folder: Path) -> pd.DataFrame:
    """The rows of a run's training log; none if there is no log."""
    return pd.DataFrame(read_metrics(Path(folder) / "metrics.ndjson"))


def state_usage(found: list[application.States]) -> np.ndarray:
    """Each state's share of the frames."""
    if not found:
        return np.zeros(0)
    counts = np.bincount(np.concatenate([x.states for x in found]), minlength=found[0].probability.shape[1])
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
