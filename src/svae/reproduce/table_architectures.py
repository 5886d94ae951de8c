"""Numbers of parameters, beside the paper's: models of motion capture with 84 channels."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from matplotlib.figure import Figure

from svae.models import SVAE
from svae.plots import INK, PALETTE, plain_axes
from svae.reproduce.efforts import EFFORTS, TASKS, config_for
from svae.reproduce.published import ARCHITECTURES
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.training.build import GraphPrior, blank
from svae.words import table

KEY = ("model",)
CHANNELS = 84
PARTS = "encoder", "decoder", "latent"
WHY = (
    "The paper's SLDS leaves out the 136 numbers of the scale of the first state. Its count for the "
    "discrete DKS cannot be had with the networks that it describes; in ours, the posterior's see the "
    "encoder's output."
)


def measure(request: Request, results: Results) -> None:
    """Shapes only: nothing is trained, and nothing is random."""
    results.settle(**request.about(data=f"none: {CHANNELS} channels"))
    paper = replace(TASKS["mocap"], own={})
    for model in ARCHITECTURES:
        config = config_for(paper, EFFORTS["full"], "none", model, seed=0)
        shapes = blank(config, CHANNELS, GraphPrior())
        results.add({"model": model, **dict(zip(PARTS, sizes(shapes), strict=True))})


def sizes(model: Any) -> tuple[int, int, int]:
    """Of encoder, decoder (with the scale of the likelihood) and what specifies p(z) and q(z)."""
    size = lambda tree: sum(x.size for x in jax.tree.leaves(eqx.filter(tree, _is_learned)))
    parts: tuple[Any, Any, Any]
    if isinstance(model, SVAE):
        parts = model.encoder, (model.decoder, model.likelihood), (model.parameters, model.recognition)
    elif hasattr(model, "backward"):  # the SRNN, whose forward LSTM counts as a part of the decoder
        parts = (
            (model.embed, model.backward),
            (model.forward, model.decoder, model.likelihood),
            (model.prior, model.posterior),
        )
    else:
        latent = model.prior, getattr(model, "posterior", None)  # the Transformer's is its encoder
        parts = model.encoder, (model.decoder, model.likelihood), latent
    encoder, decoder, latent = map(size, parts)
    return encoder, decoder, latent


def _is_learned(x: Any) -> bool:
    return eqx.is_inexact_array(x) or isinstance(x, jax.ShapeDtypeStruct)


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Ours, and the paper's in italics below."""
    lines = [["model", *PARTS]]
    for row in rows:
        lines.append([row["model"], *(f"{row[part]:,}" for part in PARTS)])
        if row["model"] in ARCHITECTURES:
            lines.append(["*the paper*", *(f"*{x:,}*" for x in ARCHITECTURES[row["model"]])])
    text = f"Models of {CHANNELS} channels, 16 latent dimensions and 50 states.\n\n{table(lines)}\n\n{WHY}"
    return Shown("Architectures, numbers of parameters", text, _figure(rows))


def _figure(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(8, 0.5 * len(rows) + 1.2), layout="constrained")
    axes = plain_axes(figure.subplots())
    places = np.arange(len(rows))[::-1]
    for shift, alpha, own in (0.2, 1.0, True), (-0.2, 0.45, False):
        left = np.zeros(len(rows))
        for number, (part, colour) in enumerate(zip(PARTS, PALETTE, strict=False)):
            values = np.array([r[part] if own else ARCHITECTURES[r["model"]][number] for r in rows], float)
            label = f"{part}, {'ours' if own else 'the paper'}"
            axes.barh(
                places + shift, values / 1000, 0.36, left=left / 1000, color=colour, alpha=alpha, label=label
            )
            left += values
    axes.set_yticks(places, labels=[row["model"] for row in rows])
    axes.set_xlabel("thousands of parameters", color=INK)
    axes.legend(fontsize=8, frameon=False, ncols=2)
    return figure
