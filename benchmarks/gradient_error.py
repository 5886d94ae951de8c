r"""How wrong is each gradient through inference, before and after inference has converged?

No neural network: a switching linear dynamical system, data drawn from one, and the potentials that a
perfect encoder would give. The loss of a sequence is of the kind that training minimises,

$$ \ell = E_{q(\theta)} \mathrm{KL}(q(z) \,\|\, p(z \mid \theta)) + f(z), \qquad z \sim q
   \text{ with fixed noise}, $$

with $f$ a nonlinear stand-in for the reconstruction. Its gradient is taken with respect to what the
encoder and the graphical model hand to inference: the potentials, and the expected statistics of the
parameters. After L sweeps, each way to pass gradients through inference gives an estimate $g_L$; the
truth $g_*$ is the implicit gradient at convergence. Two questions, each for a model as it is first
initialised and for one fitted to the data:

1. How large is $\|g_L - g_*\|$, relative to the error of `NoSolve` after as many sweeps?
2. Where inference has converged, how does $\|g - g_*\| / \|g_*\|$ fall with the number of belief
   propagation passes that are spent on the adjoint's linear system?

`python benchmarks/gradient_error.py` writes a figure and all its numbers, and prints a table.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from svae.bench.rows import command_line
from svae.bench.timing import machine
from svae.chains import DiscreteChainTerms
from svae.expfam import GaussianParameters, LinearGaussian, Terms, add
from svae.meanfield import (
    Adjoint,
    BlockPosterior,
    Blocks,
    ConjugateGradients,
    CoordinateAscent,
    GaussSeidel,
    NoSolve,
    Richardson,
    Solution,
    Unrolled,
    fixed_point,
    linear_system,
    local_kl,
    surrogate,
)
from svae.meanfield.adjoints import ImplicitAdjoint
from svae.meanfield.problem import sweep
from svae.meanfield.solver import divergence
from svae.pgm import SLDS, SLDSGlobals

GRID = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50)
TRUTH_SWEEPS = 1000  # of the forward pass, and terms of the series behind the true gradient
PRECISION = 1.0  # of the observations: low, so that the prior matters and inference takes many sweeps
STEP_NOISE = 0.05  # variance of the true dynamics
STAY = 0.95  # probability of keeping the state
FAILED = 1e300  # stands for an error that is infinite or not a number

Adjoints = dict[str, ImplicitAdjoint]

UNROLLED = "Unrolled"
IMPLICIT = "Implicit, J = 50"
CAPPED = "Implicit + cap"
THRESHOLD = "Implicit + cap + threshold"
CG = "CG, 10 steps"
CG_CAPPED = "CG + cap"
CG_THRESHOLD = "CG + cap + threshold"
NO_SOLVE = "No-Solve"
ESTIMATORS = (IMPLICIT, UNROLLED, CAPPED, THRESHOLD, CG, CG_CAPPED, CG_THRESHOLD, NO_SOLVE)
SERIES = "Richardson"
SWEEPS = "Gauss-Seidel"
CONJUGATE = "Conjugate gradients"

ADJOINTS: Adjoints = {
    IMPLICIT: Richardson(steps=50, fallback=False),
    CAPPED: Richardson(fallback=False),
    THRESHOLD: Richardson(),
    CG: ConjugateGradients(),
    NO_SOLVE: NoSolve(),
}


class Setting(NamedTuple):
    """Sizes of the experiment."""

    num_states: int = 8
    latent_dim: int = 4
    num_steps: int = 100
    batch: int = 32
    seed: int = 0
    fit_rounds: int = 40
    sweeps: tuple[int, ...] = GRID


QUICK = Setting(3, 2, 30, 8, fit_rounds=10, sweeps=(1, 2, 4, 8, 16))


class Data(NamedTuple):
    """Noisy observations of latent paths, and the states that ruled them."""

    observations: Float[Array, "batch time n"]
    states: Int[Array, "batch time_minus_1"]


class Case(NamedTuple):
    """A model's inference problems. All but `theta` have a leading axis of sequences."""

    theta: Terms
    linear: Float[Array, "batch time n"]  # the encoder's potentials exp(r'z - z' diag(R) z / 2)
    precision: Float[Array, "batch time n"]
    target: Float[Array, "batch time n"]  # what a sample is compared with
    start: Blocks
    noise: Key[Array, "batch"]  # of the one sample


class Gradient(NamedTuple):
    """Of one sequence's loss (or, with a leading axis, of each sequence's)."""

    theta: Terms
    linear: Float[Array, "*batch time n"]
    precision: Float[Array, "*batch time n"]


EACH_SEQUENCE = Case(None, 0, 0, 0, 0, 0)  # axes for vmap


# The data, and the two models.


def true_parameters(rng: np.random.Generator, num_states: int, latent_dim: int) -> SLDSGlobals:
    """Each state turns about its own centre, in its own plane, at its own speed."""
    weights = []
    for angle in np.linspace(0.1, 0.9, num_states):
        basis = np.linalg.qr(rng.normal(size=(latent_dim, latent_dim)))[0]
        turn = np.eye(latent_dim)
        turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        matrix = 0.95 * basis @ turn @ basis.T
        centre = 2 * rng.normal(size=latent_dim)
        weights.append(np.column_stack([matrix, centre - matrix @ centre]))
    noise = np.broadcast_to(STEP_NOISE * np.eye(latent_dim), (num_states, latent_dim, latent_dim))
    move = (1 - STAY) / max(num_states - 1, 1)
    parameters = SLDSGlobals(
        GaussianParameters(np.zeros(latent_dim), np.eye(latent_dim)),
        LinearGaussian(np.stack(weights), noise),
        np.full(num_states, 1 / num_states),
        np.full((num_states, num_states), move) + (STAY - move) * np.eye(num_states),
    )
    return jax.tree.map(jnp.asarray, parameters)


def draw_data(model: SLDS, setting: Setting) -> Data:
    """Paths of the true model, seen through noise of the potentials' precision."""
    rng = np.random.default_rng(setting.seed)
    parameters = true_parameters(rng, setting.num_states, setting.latent_dim)
    path_key, noise_key = jax.random.split(jax.random.key(setting.seed))
    generate = jax.jit(jax.vmap(lambda key: model.generate(key, parameters, setting.num_steps)))
    paths, states = generate(jax.random.split(path_key, setting.batch))
    return Data(paths + PRECISION**-0.5 * jax.random.normal(noise_key, paths.shape), states)


def encode(data: Data) -> tuple[Array, Array]:
    """Linear terms and precisions of the potentials."""
    precision = jnp.full_like(data.observations, PRECISION)
    return precision * data.observations, precision


def make_case(model: SLDS, natural: Terms, data: Data, seed: int) -> Case:
    """The data's inference problems under q(theta), each with its start and its noise."""

    @jax.jit
    def prepare(natural: Terms, linear: Array, precision: Array) -> tuple[Terms, Blocks]:
        theta = model.family.expected_stats(natural)
        potentials = jax.vmap(model.potentials)(linear, precision)
        return theta, jax.vmap(lambda own: model.start(theta, own, None))(potentials)

    linear, precision = encode(data)
    theta, start = prepare(natural, linear, precision)
    noise = jax.random.split(jax.random.key(seed + 1), len(linear))
    return Case(theta, linear, precision, data.observations, start, noise)


@jax.jit
def conjugate_update(model: SLDS, stats: Blocks) -> Terms:
    r"""The best q(theta) given q(z): $\eta = \eta_0 + \sum_n \partial E_n / \partial\theta$."""

    def energy(theta: Terms) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(lambda own: model.problem().energy(theta, own))(stats))

    return add(model.prior(), jax.grad(energy)(model.prior()))  # linear in theta: any point serves


@jax.jit
def infer_all(model: SLDS, natural: Terms, potentials: Blocks, start: Blocks) -> tuple[Blocks, Array]:
    """Statistics of every sequence, and the evidence lower bound of the whole data."""
    theta, problem = model.family.expected_stats(natural), model.problem()

    def infer(potentials: Blocks, start: Blocks) -> tuple[Blocks, Array]:
        solution = fixed_point(problem, theta, potentials, start, CoordinateAscent(10, 1e-6))
        return solution.stats, surrogate(problem, theta, potentials, solution.posterior)

    stats, objectives = jax.vmap(infer)(potentials, start)
    return stats, jnp.sum(objectives) - model.family.kl(natural, model.prior())


def fit(model: SLDS, data: Data, rounds: int) -> tuple[Terms, list[float]]:
    """Coordinate ascent between q(z) and q(theta) from a rough idea of the states; and its bounds."""
    states = 0.6 * jax.nn.one_hot(data.states, model.num_states) + 0.4 / model.num_states
    pairs = jnp.einsum("bti,btj->bij", states[:, :-1], states[:, 1:])
    chain, _ = model.blocks(None)
    stats = jax.vmap(chain.sufficient_stats)(data.observations), DiscreteChainTerms(states, pairs)
    potentials, bounds = jax.vmap(model.potentials)(*encode(data)), []
    for _ in range(rounds):
        stats, bound = infer_all(model, conjugate_update(model, stats), potentials, stats)
        bounds.append(float(bound))
    return conjugate_update(model, stats), bounds


# Inference, and gradients of the loss, for each sequence.


def loss(model: SLDS, case: Case, theta: Terms, posterior: BlockPosterior) -> Float[Array, ""]:
    """Local KL, plus g(z) = z + sin(2z)/2 against g(target): a stand-in for the reconstruction."""
    chain, _ = model.blocks(None)
    path = chain.sample(case.noise, posterior.naturals[0])
    seen, wanted = (z + 0.5 * jnp.sin(2 * z) for z in (path, case.target))
    return local_kl(model.problem(), theta, posterior) + 0.5 * PRECISION * jnp.sum((seen - wanted) ** 2)


def begin(case: Case) -> Solution:
    """No sweep yet."""
    zeros = jnp.zeros(len(case.linear))
    empty = BlockPosterior(case.start, case.start, (zeros, zeros))
    return Solution(*empty, zeros.astype(int), zeros + jnp.inf, zeros > 0)


@jax.jit
def advance(model: SLDS, case: Case, solution: Solution, sweeps: Int[Array, ""]) -> Solution:
    """Inference goes on until it has taken `sweeps` sweeps, whether or not it could have stopped.

    `converged` says whether the default tolerance would have let it.
    """
    problem, tolerance = model.problem(), CoordinateAscent().tolerance

    def one(case: Case, solution: Solution) -> Solution:
        potentials = model.potentials(case.linear, case.precision)

        def step(taken: Int[Array, ""], old: Solution) -> Solution:
            new = sweep(problem, case.theta, potentials, old.stats)
            residual = jnp.where(taken == 0, jnp.inf, divergence(new, old.posterior))
            return Solution(*new, taken + 1, residual, residual <= tolerance)

        return jax.lax.fori_loop(solution.sweeps, sweeps, step, solution)

    return jax.vmap(one, (EACH_SEQUENCE, 0))(case, solution)


@jax.jit
def gradient_through(model: SLDS, case: Case, solver: CoordinateAscent, adjoint: Adjoint) -> Gradient:
    """The gradient as training takes it: `jax.grad` through `fixed_point`."""

    def one(case: Case) -> Gradient:
        def through(theta: Terms, linear: Array, precision: Array) -> Float[Array, ""]:
            potentials = model.potentials(linear, precision)
            solution = fixed_point(model.problem(), theta, potentials, case.start, solver, adjoint)
            return loss(model, case, theta, solution.posterior)

        return Gradient(*jax.grad(through, argnums=(0, 1, 2))(case.theta, case.linear, case.precision))

    return jax.vmap(one, (EACH_SEQUENCE,))(case)


@jax.jit
def gradients_at(model: SLDS, case: Case, solution: Solution, adjoints: Adjoints) -> dict[str, Gradient]:
    """The same by several implicit adjoints, at a solution at hand.

    Cotangents a of the naturals and c of the statistics become the cotangent y of the naturals' sources;
    these are the encoder's potentials, and theta through the messages d energy / d stats.
    """
    problem = model.problem()

    def one(case: Case, solution: Solution) -> dict[str, Gradient]:
        of_loss = jax.grad(lambda theta, posterior: loss(model, case, theta, posterior), argnums=(0, 1))
        direct, bar = of_loss(case.theta, solution.posterior)
        system = linear_system(problem, case.theta, solution)
        _, to_encoder = jax.vjp(model.potentials, case.linear, case.precision)

        def pull_back(y: Blocks) -> Gradient:
            def along(theta: Terms) -> Float[Array, ""]:
                return jax.jvp(lambda stats: problem.energy(theta, stats), (solution.stats,), (y,))[1]

            return Gradient(add(direct, jax.grad(along)(case.theta)), *to_encoder(y))

        return {name: pull_back(a.solve(system, bar.naturals, bar.stats)) for name, a in adjoints.items()}

    return jax.vmap(one, (EACH_SEQUENCE, 0))(case, solution)


def solvers_with(steps: int) -> Adjoints:
    """All iterative solvers, with a given number of steps."""
    return {
        SERIES: Richardson(steps=steps, fallback=False),
        SWEEPS: GaussSeidel(steps=steps, fallback=False),
        CONJUGATE: ConjugateGradients(max_steps=steps, tolerance=1e-10),
    }


def passes_with(steps: int) -> dict[str, int]:
    """Linearised belief propagation passes that these take; conjugate gradients keep one in reserve."""
    return {SERIES: steps + 1, SWEEPS: steps + 1, CONJUGATE: steps + 2}


@jax.jit
def error(estimate: Gradient, truth: Gradient) -> Float[Array, "batch"]:
    """Root mean squared error of each sequence's gradient, over all its entries."""
    differences = jax.tree.leaves(add(estimate, truth, -1.0))
    squares = jnp.concatenate([d.reshape(len(d), -1) ** 2 for d in differences], axis=1)
    return jnp.sqrt(jnp.mean(squares, axis=1))


# The two experiments.


class Truth(NamedTuple):
    """Converged inference, and the gradient there."""

    solution: Solution
    gradient: Gradient
    scale: Float[Array, "batch"]  # root mean square of the gradient


def find_truth(model: SLDS, case: Case) -> Truth:
    """Sweep until nothing moves, then sum the series with as many terms."""
    solution = advance(model, case, begin(case), jnp.asarray(TRUTH_SWEEPS))
    gradient = gradients_at(model, case, solution, ADJOINTS)[CAPPED]
    return Truth(solution, gradient, error(gradient, jax.tree.map(jnp.zeros_like, gradient)))


class BySweeps(NamedTuple):
    """What experiment 1 gives."""

    errors: dict[str, Float[np.ndarray, "grid batch"]]
    converged: Bool[np.ndarray, "grid batch"]


def errors_by_sweeps(
    model: SLDS, case: Case, truth: Truth, grid: tuple[int, ...], say: Callable[[str], None]
) -> BySweeps:
    """Experiment 1: every estimator's error after L sweeps."""
    solution, rows = begin(case), []
    for sweeps in grid:
        solution = advance(model, case, solution, jnp.asarray(sweeps))
        gradients = gradients_at(model, case, solution, ADJOINTS)
        gradients[CG_CAPPED] = gradients_at(model, case, solution, solvers_with(sweeps))[CONJUGATE]
        gradients[UNROLLED] = gradient_through(model, case, CoordinateAscent(sweeps, 0.0), Unrolled())
        row = {name: np.asarray(error(gradient, truth.gradient)) for name, gradient in gradients.items()}
        row[CG_THRESHOLD] = np.where(solution.converged, row[CG_CAPPED], row[NO_SOLVE])
        rows.append(BySweeps(row, np.asarray(solution.converged)))
        say(f"  {sweeps} sweeps: {np.mean(solution.converged):.0%} of the sequences have converged")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def errors_by_passes(
    model: SLDS, case: Case, truth: Truth, grid: tuple[int, ...]
) -> dict[str, Float[np.ndarray, "grid batch"]]:
    """Experiment 2: relative error at the converged posterior after n steps of each solver."""
    rows = []
    for steps in grid:
        gradients = gradients_at(model, case, truth.solution, solvers_with(steps))
        row = {name: error(gradient, truth.gradient) / truth.scale for name, gradient in gradients.items()}
        rows.append(row)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


class Outcome(NamedTuple):
    """Both experiments with one model."""

    by_sweeps: BySweeps
    by_passes: dict[str, Float[np.ndarray, "grid batch"]]
    truth: Truth


def run(setting: Setting, say: Callable[[str], None] = print) -> dict[str, Outcome]:
    """Both experiments with both models."""
    model = SLDS(setting.num_states, setting.latent_dim)
    data = draw_data(model, setting)
    fitted, bounds = fit(model, data, setting.fit_rounds)
    say(f"fitted in {len(bounds)} rounds, bound from {bounds[0]:.1f} to {bounds[-1]:.1f} nats")
    naturals = {"new": jax.jit(model.initial)(jax.random.key(setting.seed)), "fitted": fitted}
    outcomes = {}
    for name, natural in naturals.items():
        say(f"{name} model")
        case = make_case(model, natural, data, setting.seed)
        truth = find_truth(model, case)
        by_sweeps = errors_by_sweeps(model, case, truth, setting.sweeps, say)
        outcomes[name] = Outcome(by_sweeps, errors_by_passes(model, case, truth, setting.sweeps), truth)
    return outcomes


# The report.


def over_batch(values: Float[np.ndarray, "grid batch"]) -> dict[str, list[float]]:
    """Median and 90th percentile over the sequences."""
    values = np.nan_to_num(values, nan=FAILED, posinf=FAILED)
    columns = {"median": np.median(values, axis=1), "p90": np.quantile(values, 0.9, axis=1, method="higher")}
    return {name: [float(f"{x:.4g}") for x in column] for name, column in columns.items()}


def relative(errors: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """The ratio, where nothing relative to nothing is one."""
    errors, baseline = (np.maximum(x, np.finfo(float).tiny) for x in (errors, baseline))
    return errors / baseline


def summarise(setting: Setting, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """All numbers of the figure, and what vouches for the truth."""
    report: dict[str, Any] = {"setting": setting._asdict(), "machine": machine(), "models": {}}
    for name, (by_sweeps, by_passes, truth) in outcomes.items():
        baseline, scale = by_sweeps.errors[NO_SOLVE], np.asarray(truth.scale)
        report["models"][name] = {
            "converged": np.mean(by_sweeps.converged, axis=1).tolist(),
            "no_solve_relative_error": over_batch(baseline / scale),
            "ratio_to_no_solve": {
                key: over_batch(relative(by_sweeps.errors[key], baseline)) for key in ESTIMATORS
            },
            "relative_error_by_passes": {
                key: {"passes": [passes_with(n)[key] for n in setting.sweeps], **over_batch(errors)}
                for key, errors in by_passes.items()
            },
            "truth": {
                "sweeps": TRUTH_SWEEPS,
                "largest_residual": float(jnp.max(truth.solution.residual)),
                "largest_difference_to_conjugate_gradients": float(np.max(by_passes[CONJUGATE][-1])),
            },
        }
    return report


def table(report: dict[str, Any]) -> str:
    """Medians (and 90th percentiles) at some numbers of sweeps."""
    grid = report["setting"]["sweeps"]
    shown = [i for i, sweeps in enumerate(grid) if sweeps in (1, 3, 5, 10, 20, 50) or sweeps == grid[-1]]
    lines = ["error relative to No-Solve after as many sweeps: median (90th percentile)"]
    for name, numbers in report["models"].items():
        lines += ["", f"{name + ' model, L =':<28}" + "".join(f"{grid[i]:>20}" for i in shown)]
        lines.append(f"{'converged':<28}" + "".join(f"{numbers['converged'][i]:>20.0%}" for i in shown))
        for estimator, ratio in numbers["ratio_to_no_solve"].items():
            cells = (f"{ratio['median'][i]:.2g} ({ratio['p90'][i]:.2g})" for i in shown)
            lines.append(f"{estimator:<28}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


COLOURS = {  # safe for colour-blind readers (Okabe and Ito), in the order of the legend
    IMPLICIT: "#D55E00",
    UNROLLED: "#E69F00",
    CAPPED: "#56B4E9",
    THRESHOLD: "#0072B2",
    CG: "#CC79A7",
    CG_THRESHOLD: "#009E73",
    NO_SOLVE: "black",
    SERIES: "#0072B2",
    SWEEPS: "#D55E00",
    CONJUGATE: "#009E73",
}
TITLES = {"new": "Newly initialised model", "fitted": "Model fitted to the data"}
FLOOR, CEILING = 1e-6, 1e3  # of the ratios that are shown


def plot(report: dict[str, Any], path: Path) -> None:
    """The experiments in two rows, the models in two columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9), layout="constrained")
    upper, lower = figure.subplots(2, 2, sharey="row")
    for above, below, (name, numbers) in zip(upper, lower, report["models"].items(), strict=True):
        above.set_title(TITLES[name], fontweight="bold")
        plot_sweeps(above, report["setting"]["sweeps"], numbers)
        plot_passes(below, numbers["relative_error_by_passes"])
    upper[0].set_ylabel("error of the gradient after L sweeps,\nrelative to that of No-Solve")
    lower[0].set_ylabel("relative error of the gradient\nwhere inference has converged")
    add_legend(upper[1], {"at least half of the\nsequences have converged": {"color": "0.9", "lw": 8}})
    add_legend(lower[1], {})
    figure.savefig(path, dpi=150)


def plot_curve(axes: Any, x: list[int], curve: dict[str, list[float]], name: str) -> None:
    """Median solid, 90th percentile dashed; zero is drawn as something tiny."""
    median, p90 = (np.maximum(curve[key], 1e-16) for key in ("median", "p90"))
    axes.plot(x, median, "o-", ms=3.5, lw=1.8, color=COLOURS[name], label=name)
    axes.plot(x, p90, "--", lw=1.1, color=COLOURS[name], alpha=0.8)


def plot_sweeps(axes: Any, grid: list[int], numbers: dict[str, Any]) -> None:
    """Experiment 1, shaded from where at least half of the sequences have converged."""
    ratios = {name: numbers["ratio_to_no_solve"][name] for name in COLOURS if name in ESTIMATORS}
    axes.axhline(1, color="black", lw=1.8, label=NO_SOLVE, zorder=1.5)
    for name in [name for name in ratios if name != NO_SOLVE]:
        plot_curve(axes, grid, ratios[name], name)
    half = np.searchsorted(numbers["converged"], 0.5)
    if half < len(grid):
        axes.axvspan(grid[half], 2 * grid[-1], color="0.95", zorder=0)
    worst = {name: max(ratio["p90"]) for name, ratio in ratios.items()}
    beyond = [f"{name}: up to {value:.0e}" for name, value in worst.items() if value > CEILING]
    if beyond:
        text = "beyond the scale (90th percentile):\n" + "\n".join(beyond)
        axes.text(0.03, 0.04, text, fontsize=9, color="0.35", transform=axes.transAxes)
    axes.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING), xlim=(0.9, 1.1 * grid[-1]))
    ticks = [sweeps for sweeps in (1, 2, 5, 10, 20, 50, 100) if sweeps <= grid[-1]]
    axes.set_xticks(ticks, labels=ticks)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("sweeps of inference, L")
    decorate(axes)


def plot_passes(axes: Any, curves: dict[str, Any]) -> None:
    """Experiment 2."""
    for name in (SERIES, SWEEPS, CONJUGATE):
        plot_curve(axes, curves[name]["passes"], curves[name], name)
    axes.set(yscale="log", ylim=(1e-13, 1.5), xlim=(0, None))
    axes.set_xlabel("belief propagation passes allowed for the linear system")
    decorate(axes)


def decorate(axes: Any) -> None:
    """A light grid, and no box."""
    axes.grid(color="0.88", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend(axes: Any, extra: dict[str, dict[str, Any]]) -> None:
    """Beside the panel: the curves in the order of `COLOURS`, then what the styles mean."""
    from matplotlib.lines import Line2D

    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    entries = {name: drawn[name] for name in COLOURS if name in drawn}
    styles = {"median over sequences": {"color": "0.35"}, "90th percentile": {"color": "0.35", "ls": "--"}}
    entries |= {name: Line2D([], [], **style) for name, style in (styles | extra).items()}
    axes.legend(
        entries.values(), entries, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    default = Setting()
    parser = argparse.ArgumentParser(
        description="Gradient error of each adjoint against sweeps of inference."
    )
    parser.add_argument("--num-states", type=int, help=f"discrete states (default {default.num_states})")
    parser.add_argument(
        "--latent-dim", type=int, help=f"size of the latent path (default {default.latent_dim})"
    )
    parser.add_argument("--num-steps", type=int, help=f"steps of a sequence (default {default.num_steps})")
    parser.add_argument("--batch", type=int, help=f"sequences (default {default.batch})")
    parser.add_argument("--seed", type=int, help=f"random seed (default {default.seed})")
    parser.add_argument("--max-sweeps", type=int, help=f"largest L (default {default.sweeps[-1]})")
    parser.add_argument("--quick", action="store_true", help="small defaults instead: about a minute")
    parser.add_argument("--out", type=Path, help="where to write, without .json and .png")
    return parser.parse_args(arguments)


def choose_setting(options: argparse.Namespace) -> Setting:
    """Defaults, and what was asked for."""
    setting = QUICK if options.quick else Setting()
    names = ("num_states", "latent_dim", "num_steps", "batch", "seed")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    last = options.max_sweeps or setting.sweeps[-1]
    sweeps = (*(sweeps for sweeps in setting.sweeps if sweeps < last), last)
    return setting._replace(**given, sweeps=sweeps)


def main(arguments: list[str]) -> None:
    """Run, print a table, write the numbers and the figure."""
    options = parse(arguments)
    jax.config.update("jax_enable_x64", True)
    out = options.out or Path(__file__).parent / "results" / "gradient-error"
    out.parent.mkdir(parents=True, exist_ok=True)
    setting, began = choose_setting(options), time.perf_counter()
    report = summarise(setting, run(setting))
    command = command_line("gradient_error", arguments)
    report = {"command": command, "seconds": round(time.perf_counter() - began, 1), **report}
    print(table(report))
    out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, out.with_suffix(".png"))


if __name__ == "__main__":
    main(sys.argv[1:])
