"""Stage 2 in full: from an encoder to the graphical model's prior scales and first posterior."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from svae import arhmm
from svae.config import Config
from svae.durations import frames_from_duration
from svae.expfam import Terms
from svae.models import SVAE, Batch
from svae.pgm import LDS, SLDS, GaussianMixture, PlacedSLDS, SemiMarkovSLDS, StandardNormal
from svae.training.build import GraphPrior, graph_for
from svae.training.initialise import (
    ChainGraph,
    arhmm_prior,
    encoded_paths,
    fit_dynamics,
    fit_mixture,
    innovation_of,
    parameters_from_arhmm,
    shared_dynamics,
    shared_place,
    standard_prior,
)
from svae.training.trees import arrays_from_tree, tree_from_arrays


@dataclass(frozen=True)
class Start:
    """The graphical model's prior, and standard parameters of the posterior to begin with."""

    prior: GraphPrior
    parameters: Terms

    def save(self, path: Path) -> None:
        """Everything but the structure, which the settings determine."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {"prior": json.dumps(self.prior._asdict())}
        arrays |= {name: np.asarray(x) for name, x in arrays_from_tree(self.parameters).items()}
        temporary = path.with_suffix(".tmp.npz")
        np.savez(temporary, **arrays)
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path, config: Config) -> "Start":
        """The inverse."""
        with np.load(path) as file:
            stored = dict(file)
        prior = GraphPrior(**json.loads(str(stored.pop("prior"))))
        shapes = jax.eval_shape(lambda: standard_prior(graph_for(config, prior)))
        return cls(prior, tree_from_arrays(shapes, stored))


def find_start(
    config: Config,
    model: SVAE,
    data: Batch,
    num_sequences: int,
    rate: float | None,
    key: PRNGKeyArray,
    note: Callable[[dict[str, Any]], None] = lambda record: None,
    hurry: bool = False,
) -> Start:
    """Encode sequences, find scales and durations, fit the dynamics.

    `data` are the sequences to encode, out of `num_sequences`; in a `hurry` a few laps must do.
    """
    settings, seed = config.dynamics, config.seed
    prior = GraphPrior()
    graph = graph_for(config, prior)
    if settings.sequences == 0 or isinstance(graph, StandardNormal):  # that has nothing to find
        return Start(prior, graph.family.standard_from_natural(graph.initial(key)))
    series = encoded_paths(model, data)
    weight = num_sequences / len(series)
    prior = GraphPrior(settings.innovation * innovation_of(series))
    graph = graph_for(config, prior)
    if isinstance(graph, GaussianMixture):
        return Start(prior, fit_mixture(graph, series, weight, seed))
    laps, restarts = (3, 1) if hurry else (settings.laps, settings.restarts)
    effort = arhmm.Effort(
        laps, births=settings.births, restarts=restarts, most_states=config.model.num_states
    )
    assert isinstance(graph, ChainGraph)
    if isinstance(graph, SLDS | SemiMarkovSLDS) and settings.shared > 0:
        prior = prior._replace(dynamics=shared_dynamics(graph, series, settings.shared))
        graph = _chain_graph(config, prior)
    if isinstance(graph, PlacedSLDS):
        prior = prior._replace(places=shared_place(series))
        graph = _chain_graph(config, prior)
    if not isinstance(graph, LDS) and config.model.typical_duration is not None:
        frames = frames_from_duration(config.model.typical_duration, rate, "model.typical_duration")
        effort = effort._replace(run=round(frames))
        dear = lambda price: arhmm_prior(_chain_graph(config, prior._replace(price=price)))
        price, lasting = arhmm.price_for_duration(series, dear, graph.num_states, frames, seed, effort)
        note({"event": "price", "price": price, "frames": lasting, "asked": frames})
        prior = prior._replace(price=price)
        graph = _chain_graph(config, prior)
    report = lambda lap, fit: note({"lap": lap, "elbo": fit.elbo, "states": fit.posterior.num_states})
    fit = fit_dynamics(graph, series, seed, effort, report)
    if data.allowed is not None:
        fit = _with_labels(graph, fit, series, np.asarray(data.allowed))
    if not isinstance(graph, LDS):  # from here on, states that the data do not ask for would only cost time
        prior = prior._replace(num_states=fit.posterior.num_states)
        graph = _chain_graph(config, prior)
    return Start(prior, parameters_from_arhmm(graph, fit, series, weight))


def _chain_graph(config: Config, prior: GraphPrior) -> ChainGraph:
    graph = graph_for(config, prior)
    assert isinstance(graph, ChainGraph)
    return graph


def _with_labels(
    graph: ChainGraph, fit: arhmm.Fit, series: list[np.ndarray], allowed: Bool[np.ndarray, "batch time k"]
) -> arhmm.Fit:
    """Labelled frames in the states that their labels name, which come first."""
    given = np.where(allowed.all(axis=2), -1, allowed.argmax(axis=2))
    known = [states[: len(z)] for states, z in zip(given, series, strict=True)]
    return arhmm.with_known_states(arhmm_prior(graph), fit, series, known, int(given.max()) + 1)
