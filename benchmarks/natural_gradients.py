r"""How many steps does each gradient need to learn the dynamics, once the networks are trained?

An SVAE with a linear dynamical system. Its networks are pre-trained as in any fit and then frozen; the
posterior of the dynamics begins at the generic first guess, and only that is learned, by

* stochastic descent along the unbiased natural gradient, whose correction flows through inference;
* the same without the correction: the SVI update, biased wherever the encoder's potentials are not what
  the decoder's likelihood would have them be;
* Adam along the plain gradient in unconstrained coordinates.

All see the same batches and the same noise, and all have the same grid of constant step sizes: for natural
gradients the share of the way to the posterior that the batch suggests, for Adam its rate. Shown is the
step size whose curve in the figure is the lowest on average. A second count of steps to each mark takes
whatever step size is there first. The bound is that of all data, always with the same draws of the latent
paths.

How much the correction matters depends on the potentials, so there are three cases: motion capture with
networks that have learned enough, the same with networks that have only begun, and the Laplacian toy,
whose decoder is far from linear.

`python benchmarks/natural_gradients.py` writes a figure and all its numbers, and prints a table.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from svae.bench.rows import command_line
from svae.bench.timing import machine
from svae.config import make_config
from svae.data import load
from svae.expfam import BIASED, PLAIN, UNBIASED, GradientRule, Terms, natural_descent
from svae.models import SVAE, Batch
from svae.training.pipeline import fit, training_batch
from svae.training.step import begin, make_optimiser, run_steps

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
MARKS = (0.9, 0.99, 0.999)  # of the way from the first to the best bound
DRAWS = 4  # of the latent paths, in an evaluation
LOWEST = 0.02  # nats below the best bound that are told apart

Curves = Float[np.ndarray, "seeds rates checks"]


class Method(NamedTuple):
    """A gradient, and who follows it, made from a family, a step size and the number of sequences."""

    rule: GradientRule
    optimiser: Callable[..., optax.GradientTransformation]


BIASED_NATURAL = "Biased natural gradient (SVI)"
BIASED_END = "end of the biased"
METHODS = {
    "Adam": Method(PLAIN, lambda family, rate, count: optax.adam(rate)),
    BIASED_NATURAL: Method(BIASED, natural_descent),
    "Unbiased natural gradient": Method(UNBIASED, natural_descent),
}


class Case(NamedTuple):
    """Data, and networks for them."""

    data: str
    latent_dim: int
    pretraining: int  # steps
    options: tuple[tuple[str, Any], ...] = ()  # of the data set


class Setting(NamedTuple):
    """Sizes of the experiment."""

    cases: dict[str, Case]
    seeds: int = 3
    steps: int = 500
    checks: int = 32  # evaluations on the way
    batch: int = 8
    window: int = 50
    hidden: int = 64


TOY = (("num_sequences", 12),)
FULL = Setting(
    {
        "Motion capture, trained networks": Case("mocap6", 3, 1000),
        "Motion capture, hardly trained networks": Case("mocap6", 3, 100),
        "Laplacian toy, trained networks": Case("synthetic", 2, 500, TOY),
    }
)
QUICK = Setting({"Motion capture, principal components": Case("mocap6", 2, 0)}, 1, 60, 16, hidden=8)


def checkpoints(setting: Setting) -> np.ndarray:
    """The numbers of steps after which the bound is evaluated, evenly spaced in their logarithm."""
    return np.unique(np.round(np.geomspace(1, setting.steps + 1, setting.checks)).astype(int)) - 1


def frozen_networks(case: Case, setting: Setting, seed: int) -> tuple[SVAE, Batch]:
    """A model after the first stage of training, with the generic first guess of its dynamics."""
    config = make_config(
        {
            "data": {"window": setting.window},
            "model": {"graph": "lds", "latent_dim": case.latent_dim, "hidden": [setting.hidden]},
            "pretrain": {"steps": case.pretraining},
            "dynamics": {"sequences": 0},
            "joint": {"steps": 0},
            "batch_size": setting.batch,
            "seed": seed,
        }
    )
    recordings = load(case.data, **dict(case.options))
    fitted = fit(recordings, config)
    return fitted.model, training_batch(recordings.map(fitted.standardizer.apply), config)


@eqx.filter_jit
def climb(model: SVAE, data: Batch, key: PRNGKeyArray, method: Method, steps: int, batch_size: int) -> Terms:
    """The parameters of q(theta) before the first step and after each, for each step size."""
    count = data.values.shape[0]
    model = replace(model, rule=method.rule)
    still = optax.set_to_zero()

    def with_rate(rate: Float[Array, ""]) -> Terms:
        graph = method.optimiser(model.pgm.family, rate, float(count))
        optimiser = make_optimiser(still, still, graph)
        arrays, rest = eqx.partition(begin(model, optimiser), eqx.is_array)

        def one(arrays: Any, _: None) -> tuple[Any, Terms]:
            state = eqx.combine(arrays, rest)
            moved, _ = run_steps(state, data, key, optimiser, min(batch_size, count), 1)
            return eqx.filter(moved, eqx.is_array), state.model.parameters

        return lax.scan(one, arrays, None, length=steps + 1)[1]

    return lax.map(with_rate, jnp.asarray(RATES))


@eqx.filter_jit
def bounds(model: SVAE, data: Batch, parameters: Terms) -> Float[Array, "rates checks"]:
    """Of all data, in nats per sequence, with each of the parameters in place of the model's own."""
    draws = jax.random.split(jax.random.key(0), DRAWS)

    def one(parameters: Terms) -> Float[Array, ""]:
        here = replace(model, parameters=parameters)
        elbo = lambda draw: here.elbo(draw, data).elbo(data.values.shape[0])
        return jnp.mean(jax.vmap(elbo)(draws))

    return lax.map(lambda own: lax.map(one, own), parameters)


def run(setting: Setting, say: Callable[[str], None] = print) -> dict[str, dict[str, Curves]]:
    """All cases, methods, seeds and step sizes."""
    checks, outcomes = checkpoints(setting), {}
    for name, case in setting.cases.items():
        curves: dict[str, list] = {title: [] for title in METHODS}
        for seed in range(setting.seeds):
            model, data = frozen_networks(case, setting, seed)
            for title, method in METHODS.items():
                path = climb(model, data, jax.random.key(seed), method, setting.steps, setting.batch)
                curves[title].append(bounds(model, data, jax.tree.map(lambda x: x[:, checks], path)))
                say(f"{name}, seed {seed}, {title}: up to {jnp.max(curves[title][-1]):.2f} nats per sequence")
        outcomes[name] = {title: np.stack(own).astype(float) for title, own in curves.items()}
    return outcomes


# The report.


def steps_to(curves: Curves, marks: Float[np.ndarray, "seeds"], checks: np.ndarray) -> np.ndarray:
    """The first check of each seed and step size that is at the mark; infinite if none is."""
    reached = curves >= marks[:, None, None]
    return np.where(reached.any(axis=-1), checks[reached.argmax(axis=-1)], np.inf)


def quickest(steps: Float[np.ndarray, "seeds rates"]) -> dict[str, Any]:
    """The step size with the smallest median over seeds, if any gets there, and its steps."""
    medians = np.median(steps, axis=0)
    rate = int(medians.argmin())
    return {"rate": RATES[rate] if np.isfinite(medians[rate]) else None, "steps": steps[:, rate]}


def summarise_case(curves: dict[str, Curves], setting: Setting) -> dict[str, Any]:
    """The chosen step sizes and their curves, and the steps to each mark.

    Where a method ends is its average over the second half of the steps: single bounds are noisy.
    """
    checks = checkpoints(setting)
    every = np.stack(list(curves.values()))
    first, best = every[0, :, 0, 0], every.max(axis=(0, 2, 3))
    marks = {f"{100 * share:g}% of the way": first + share * (best - first) for share in MARKS}
    late = {name: own[:, :, checks >= setting.steps / 2].mean(axis=-1) for name, own in curves.items()}
    marks[BIASED_END] = late[BIASED_NATURAL].max(axis=1)
    report: dict[str, Any] = {"first": first, "best": best, "marks": marks, "methods": {}}
    for name, own in curves.items():
        below = np.maximum(best[:, None, None] - own, LOWEST)
        chosen = int(np.log(below).mean(axis=(0, 2)).argmin())
        steps = {mark: steps_to(own, values, checks) for mark, values in marks.items()}
        report["methods"][name] = {
            "rate": RATES[chosen],
            "final": late[name][:, chosen],
            "final_of_each_rate": late[name].mean(axis=0),
            "steps": {mark: taken[:, chosen] for mark, taken in steps.items()},
            "steps_at_the_quickest_rate": {mark: quickest(taken) for mark, taken in steps.items()},
            "below_best": below[:, chosen],
            "below_best_of_each_rate": np.median(below, axis=0),
        }
    return report


def plain(value: Any) -> Any:
    """Lists and rounded numbers, for JSON; what is infinite (a mark never reached) is null."""
    if isinstance(value, dict):
        return {name: plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inside) for inside in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 3) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def summarise(setting: Setting, outcomes: dict[str, dict[str, Curves]]) -> dict[str, Any]:
    """All numbers of the figure, and the steps to each mark."""
    report = {
        "setting": {**setting._asdict(), "cases": {n: c._asdict() for n, c in setting.cases.items()}},
        "rates": RATES,
        "machine": machine(),
        "checks": checkpoints(setting),
        "cases": {name: summarise_case(curves, setting) for name, curves in outcomes.items()},
    }
    return plain(report)


def median_steps(steps: list[int | None]) -> str:
    """Over the seeds; a dash where most never got there."""
    median = np.median([np.inf if taken is None else taken for taken in steps])
    return f"{median:.0f}" if np.isfinite(median) else "-"


def table(report: dict[str, Any]) -> str:
    """Steps to each mark, medians over seeds."""
    lines = ["steps at the chosen rate (at the rate that is there first), medians over seeds"]
    for name, case in report["cases"].items():
        lines += ["", f"{name:<42}{'rate':>6}{'final':>10}" + "".join(f"{m:>21}" for m in case["marks"])]
        for title, own in case["methods"].items():
            soonest = own["steps_at_the_quickest_rate"]
            cells = [
                f"{median_steps(own['steps'][mark])} ({median_steps(soonest[mark]['steps'])})"
                for mark in case["marks"]
            ]
            final = np.mean(own["final"])
            lines.append(f"{title:<42}{own['rate']:>6}{final:>10.2f}" + "".join(f"{c:>21}" for c in cells))
    return "\n".join(lines)


COLOURS = dict(zip(METHODS, ("0.5", "#E69F00", "#0072B2"), strict=True))  # safe for colour-blind readers


def plot(report: dict[str, Any], path: Path) -> None:
    """A panel for each case: how far below the best bound each method still is."""
    from matplotlib.figure import Figure

    cases = report["cases"]
    figure = Figure(figsize=(4.6 * len(cases) + 0.4, 4.8), layout="constrained")
    panels = figure.subplots(1, len(cases), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (name, case) in zip(panels, cases.items(), strict=True):
        plot_case(axes, np.asarray(report["checks"]), case)
        axes.set_title(name, fontweight="bold", fontsize=11)
        axes.set_xlabel("steps")
    panels[0].set_ylabel("nats per sequence below the best bound")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


def plot_case(axes: Any, checks: np.ndarray, case: dict[str, Any]) -> None:
    """Median over seeds, within their range; thin, the median of each other step size."""
    axes.plot([], [], color="0.7", lw=0.7, label="other step sizes")
    for name, own in case["methods"].items():
        colour, below = COLOURS[name], np.asarray(own["below_best"])
        median = np.median(below, axis=0)
        axes.plot(checks, np.transpose(own["below_best_of_each_rate"]), lw=0.7, color=colour, alpha=0.4)
        axes.fill_between(checks, below.min(axis=0), below.max(axis=0), color=colour, alpha=0.2, lw=0)
        axes.plot(checks, median, lw=2.4, color=colour, label=name)
        place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(f"rate {own['rate']:g}", (checks[-1], median[-1]), color=colour, **place)
    farthest = np.max(np.subtract(case["best"], case["first"]))  # what goes beyond gets worse, not better
    axes.set(xscale="log", yscale="log", xlim=(1, checks[-1]), ylim=(LOWEST, 2 * farthest))
    axes.grid(color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str]) -> None:
    """Run, print a table, write the numbers and the figure."""
    parser = argparse.ArgumentParser(description="Steps that each gradient needs to learn the dynamics.")
    parser.add_argument("--seeds", type=int, help="how many (default 3)")
    parser.add_argument("--steps", type=int, help="of learning (default 500)")
    parser.add_argument("--quick", action="store_true", help="one small case instead: under a minute")
    parser.add_argument("--out", type=Path, help="where to write, without .json and .png")
    options = parser.parse_args(arguments)
    out = options.out or Path(__file__).parent / "results" / "natural-gradients"
    out.parent.mkdir(parents=True, exist_ok=True)
    given = {name: value for name in ("seeds", "steps") if (value := getattr(options, name)) is not None}
    setting, began = (QUICK if options.quick else FULL)._replace(**given), time.perf_counter()
    report = summarise(setting, run(setting))
    command = command_line("natural_gradients", arguments)
    report = {"command": command, "seconds": round(time.perf_counter() - began, 1), **report}
    print(table(report))
    out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, out.with_suffix(".png"))


if __name__ == "__main__":
    main(sys.argv[1:])
