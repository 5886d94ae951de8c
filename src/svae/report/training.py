"""Training: the curves of each stage."""

from html import escape

import numpy as np
import pandas as pd

from svae.report.figures import curves_figure, picture
from svae.report.markup import tag

STAGES = {"vae": "Autoencoder", "dynamics": "Dynamics (AR-HMM)", "joint": "Everything together"}
# What shares an axis: title, label of the axis, column by name in the legend.
CURVES = [
    ("Evidence lower bound", "nats per sequence", {"ELBO": "elbo"}),
    ("Log-likelihood", "nats per sequence", {"log-likelihood": "log_likelihood"}),
    ("Divergence from the prior", "nats per sequence", {"local": "kl_local", "parameters": "kl_parameters"}),
    ("States in use", "states", {"states": "states"}),
    ("Inference that converged", "share of sequences", {"converged": "converged"}),
    ("Sweeps of inference", "sweeps", {"sweeps": "sweeps"}),
]
MAX_POINTS = 500


def training_curves(metrics: pd.DataFrame) -> str:
    """Figures for the stages there were, in order; a column that was never measured has no figure."""
    if "stage" not in metrics:
        return ""
    stages = [stage for stage in metrics["stage"].unique() if isinstance(stage, str)]
    stages.sort(key=lambda stage: list(STAGES).index(stage) if stage in STAGES else len(STAGES))
    return "".join(_stage(stage, metrics[metrics["stage"] == stage]) for stage in stages)


def _stage(stage: str, rows: pd.DataFrame) -> str:
    rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, MAX_POINTS).round().astype(int))]
    unit = next(
        (name for name in ("step", "lap", "epoch") if name in rows and rows[name].notna().any()), "row"
    )
    steps = rows[unit] if unit in rows else np.arange(len(rows))
    figures = []
    for title, label, columns in CURVES:
        curves = {name: rows[column].astype(float) for name, column in columns.items() if column in rows}
        curves = {name: values for name, values in curves.items() if np.isfinite(values).any()}
        if curves:
            drawing = picture(curves_figure(steps, curves, unit, label), title)
            figures.append(tag("figure", tag("figcaption", title), drawing))
    return tag("h3", escape(STAGES.get(stage, stage))) + tag("div", *figures, class_="grid")
