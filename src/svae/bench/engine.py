"""The cost of inference and of its gradients, and how the chains compare with dynamax's.

The model is a switching linear dynamical system. A *sweep* updates both of its blocks once. A *gradient
step* is all of training but the networks: the posterior of the parameters, inference with a fixed number
of sweeps, a sample, the loss, and its gradient with respect to the parameters and the potentials. The
backward pass takes as many steps as there were sweeps (conjugate gradients: at most).
"""

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from svae.bench.setting import Setting
from svae.bench.timing import Program, Say, Timing, compile_program, load_average, machine, time_in_turns
from svae.chains import BATCH, Form
from svae.expfam import Terms, parameter_posterior, prior_kl
from svae.meanfield import Adjoint, Blocks, ConjugateGradients, CoordinateAscent, GaussSeidel, Unrolled
from svae.meanfield.problem import sweep
from svae.pgm import SLDS


class Potentials(NamedTuple):
    """What an encoder gives inference, for each sequence."""

    linear: Float[Array, "batch time n"]
    precision: Float[Array, "batch time n"]


class Inputs(NamedTuple):
    """What the programs work on."""

    unconstrained: Terms  # parameters, as first initialised
    theta: Terms  # their expected statistics
    potentials: Potentials
    start: Blocks
    keys: Key[Array, "batch"]  # for the samples


def draw_inputs(setting: Setting) -> Inputs:
    """A newly initialised model, and random potentials."""
    model = SLDS(setting.num_states, setting.latent_dim)
    keys = jax.random.split(jax.random.key(0), setting.batch + 2)

    @jax.jit
    def draw(keys: Key[Array, "_"]) -> Inputs:
        unconstrained = model.family.unconstrained_from_natural(model.initial(keys[0]))
        theta = parameter_posterior(model.family, unconstrained).stats
        linear = jax.random.normal(keys[1], (setting.batch, setting.num_steps, setting.latent_dim))
        potentials = Potentials(linear, jnp.ones_like(linear))
        start = jax.vmap(lambda own: model.start(theta, model.potentials(*own), None))(potentials)
        return Inputs(unconstrained, theta, potentials, start, keys[2:])

    return draw(keys)


def sweep_once(theta: Terms, potentials: Potentials, start: Blocks, *, model: SLDS) -> Blocks:
    """Statistics of every sequence after one sweep."""

    def one(own: Potentials, start: Blocks) -> Blocks:
        return sweep(model.problem(), theta, model.potentials(*own), start).stats

    return jax.vmap(one, axis_name=BATCH)(potentials, start)


def gradient_step(
    unconstrained: Terms,
    potentials: Potentials,
    keys: Key[Array, "batch"],
    *,
    model: SLDS,
    solver: CoordinateAscent,
    adjoint: Adjoint,
) -> tuple[Array, Any]:
    """The loss, and its gradient with respect to the parameters (natural) and the potentials."""

    def loss(unconstrained: Terms, potentials: Potentials) -> Float[Array, ""]:
        posterior = parameter_posterior(model.family, unconstrained)

        def one(own: Potentials, key: PRNGKeyArray) -> Float[Array, ""]:
            inference = model.infer(posterior, model.potentials(*own), solver=solver, adjoint=adjoint)
            path, _ = model.sample(key, inference.solution)
            return inference.kl_local + jnp.sum(jnp.sin(path))

        each = jax.vmap(one, axis_name=BATCH)(potentials, keys)
        return jnp.mean(each) + prior_kl(model.family, posterior, model.prior())

    return jax.value_and_grad(loss, argnums=(0, 1))(unconstrained, potentials)


def programs(setting: Setting) -> list[Program]:
    """Everything that is timed here: each algorithm, with each adjoint."""
    unconstrained, theta, potentials, start, keys = draw_inputs(setting)
    solver = CoordinateAscent(setting.sweeps, tolerance=0.0)
    models = {
        form.value: SLDS(setting.num_states, setting.latent_dim, form)
        for form in (Form.SEQUENTIAL, Form.PARALLEL)
    }
    adjoints: dict[str, Adjoint] = {
        "implicit": GaussSeidel(),
        "unrolled": Unrolled(),
        "conjugate gradients": ConjugateGradients(max_steps=setting.sweeps),
    }
    sweeps = [
        Program("sweep", order, partial(sweep_once, model=model), (theta, potentials, start))
        for order, model in models.items()
    ]
    steps = [
        Program(
            "gradient step",
            f"{order}, {name}",
            partial(gradient_step, model=model, solver=solver, adjoint=adjoint),
            (unconstrained, potentials, keys),
        )
        for order, model in models.items()
        for name, adjoint in adjoints.items()
        if setting.every_pair or order == "sequential" or name == "implicit"
    ]
    return sweeps + steps


def run(setting: Setting, say: Say, compare: bool = True) -> dict[str, Any]:
    """Measure everything; the result is ready for JSON.

    `rows` are timings with `ratio`, the time relative to the first of the same group. `dynamax` holds
    the comparison of the chains, or says why there is none.
    """
    load = load_average()
    dynamax = compare_with_dynamax(setting, say) if compare else {"status": "not asked for", "rows": []}
    compiled = [compile_program(program, say) for program in programs(setting)]
    timings = time_in_turns(compiled, setting.repeats, setting.budget, say)
    return {
        "setting": setting._asdict(),
        "machine": machine() | {"load before": load},
        "rows": with_ratios(timings),
        "dynamax": dynamax,
    }


def with_ratios(timings: list[Timing]) -> list[dict[str, Any]]:
    """Rows with the time relative to the first of the same group."""
    first: dict[str, float] = {}
    for timing in timings:
        first.setdefault(timing.group, timing.seconds)
    return [timing._asdict() | {"ratio": timing.seconds / first[timing.group]} for timing in timings]


def compare_with_dynamax(setting: Setting, say: Say) -> dict[str, Any]:
    """Both libraries' chains, timed in one process of their own (see `svae.bench.smoothers`)."""
    if importlib.util.find_spec("dynamax") is None:
        return {"status": "dynamax is not installed; it comes with `pip install 'svae[test]'`", "rows": []}
    wanted = ("batch", "num_steps", "num_states", "latent_dim", "repeats", "budget")
    sizes = json.dumps({name: getattr(setting, name) for name in wanted})
    # A larger thread pool keeps concurrent LAPACK calls from waiting for each other for ever.
    environment = {"PJRT_NPROC": "32", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    say(f"comparing with dynamax, at most {setting.timeout:g} s")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "svae.bench.smoothers", sizes],
            env=environment,
            timeout=setting.timeout,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return {"status": f"timed out after {setting.timeout:g} s", "rows": []}
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"status": f"failed: {reason}", "rows": []}
    result = json.loads(done.stdout.splitlines()[-1])
    rows = with_ratios([Timing(**timing) for timing in result["timings"]])
    return {"status": "measured", "rows": rows, "differences": result["differences"]}


def table(report: dict[str, Any]) -> str:
    """The report as text."""
    head = f"{'':<38}{'time':>12}{'ratio':>8}{'compile':>10}{'memory':>12}{'runs':>6}"
    lines = [", ".join(f"{name} {value}" for name, value in report["machine"].items()), "", head]
    for section in (report["rows"], report["dynamax"]["rows"]):
        group = None
        for row in section:
            if row["group"] != group:
                group = row["group"]
                lines.append(group)
            lines.append(
                f"  {row['name']:<36}{in_milliseconds(row['seconds']):>12}{row['ratio']:>8.2f}"
                f"{row['compile_seconds']:>8.1f} s{row['temp_bytes'] / 2**20:>8.1f} MiB{row['runs']:>6}"
            )
    lines.append(f"dynamax: {report['dynamax']['status']}")
    return "\n".join(lines)


def in_milliseconds(seconds: float) -> str:
    """About three digits."""
    value = 1e3 * seconds
    digits = 0 if value >= 100 else 1 if value >= 10 else 3
    return f"{value:.{digits}f} ms"
