"""The paper's timing table: a whole gradient step of an SVAE-SLDS, by each method, for several batch sizes.

All of training is in it but the optimiser: encoder, inference with a fixed number of sweeps, a sample,
decoder, likelihood, all divergences, and the gradient with respect to everything. `implicit` is the capped
implicit gradient, `unrolled` backpropagation through the sweeps.
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from svae.bench.published import AUTHORS_CPU, AUTHORS_H200, PAPER
from svae.bench.timing import Program, Say, compile_program, machine, timed
from svae.cards import write_card
from svae.chains import Form
from svae.meanfield import Adjoint, CoordinateAscent, GaussSeidel, Unrolled
from svae.models import SVAE, Batch, make_svae
from svae.networks import Gaussian
from svae.pgm import SLDS
from svae.training.step import loss


class Sizes(NamedTuple):
    """The model, and how often to measure."""

    num_steps: int = 250
    num_states: int = 50
    latent_dim: int = 16
    num_features: int = 100
    sweeps: int = 10
    repeats: int = 10


ADJOINTS: dict[str, Adjoint] = {"implicit": GaussSeidel(fallback=False), "unrolled": Unrolled()}
METHODS = [f"{adjoint}, {form.value}" for form in Form for adjoint in ADJOINTS]


def default_methods() -> list[str]:
    """Those that make sense on this machine: kernels would only be interpreted on a CPU."""
    on_cpu = jax.default_backend() == "cpu"
    return [name for name in METHODS if not (on_cpu and name.endswith(Form.KERNEL.value))]


def default_batches() -> list[int]:
    """The paper's and one more, or what a CPU can do."""
    return [1, 8] if jax.default_backend() == "cpu" else [1, 32, 64, 128, 1024]


def make_model(sizes: Sizes, method: str, key: PRNGKeyArray) -> SVAE:
    """An untrained model with the method's algorithms."""
    adjoint, form = method.split(", ")
    return make_svae(
        SLDS(sizes.num_states, sizes.latent_dim, Form(form)),
        Gaussian(sizes.num_features),
        sizes.num_features,
        key,
        solver=CoordinateAscent(sizes.sweeps, tolerance=0.0),
        adjoint=ADJOINTS[adjoint],
    )


def gradient_step(arrays: Any, static: Any, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Any]:
    """The loss and its gradient."""
    value = lambda arrays: loss(eqx.combine(arrays, static), key, batch, batch.values.shape[0])[0]
    return jax.value_and_grad(value)(arrays)


def make_batch(sizes: Sizes, batch_size: int, key: PRNGKeyArray) -> Batch:
    """Random smooth data, as the encoder's potentials are to be of use to inference."""
    steps = jax.random.normal(key, (batch_size, sizes.num_steps, sizes.num_features))
    values = jnp.cumsum(steps, axis=1) / jnp.sqrt(sizes.num_steps)
    return Batch(values, jnp.full(batch_size, sizes.num_steps, jnp.int32))


def make_program(sizes: Sizes, method: str, batch_size: int) -> Program:
    """What is timed."""
    model_key, data_key, key = jax.random.split(jax.random.key(0), 3)
    arrays, static = eqx.partition(make_model(sizes, method, model_key), eqx.is_inexact_array)
    batch = make_batch(sizes, batch_size, data_key)
    step = lambda arrays, batch, key: gradient_step(arrays, static, batch, key)
    return Program("gradient step", method, step, (arrays, batch, key))


def measure(sizes: Sizes, method: str, batch_size: int, say: Say) -> dict[str, Any]:
    """One row. Compiling includes tracing and the first step."""
    program = make_program(sizes, method, batch_size)
    facts = machine()
    row = {"method": method, "batch": batch_size, "device": facts["device"], "jax": facts["jax"]}
    try:
        compiled = compile_program(program, lambda _: say(f"compiling {method}, batch {batch_size}"))
        (value, _), first = timed(compiled.run)
        times = [timed(compiled.run)[1] for _ in range(sizes.repeats)]
    except Exception as error:  # out of memory, say: the other rows still count
        return row | {"median_ms": None, "error": str(error).splitlines()[0][:200]}
    memory = compiled.executable.memory_analysis()
    held = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return row | {
        "median_ms": 1e3 * median(times),
        "fastest_ms": 1e3 * min(times),
        "peak_gib": held / 2**30,
        "compile_s": compiled.seconds + first,
        "loss": float(value),
    }


def run(
    sizes: Sizes, methods: Iterable[str], batches: Iterable[int], say: Say, path: Path | None
) -> list[dict]:
    """All rows; each is written as soon as it is there."""
    rows: list[dict[str, Any]] = []
    for batch_size in batches:
        for method in methods:
            rows.append(measure(sizes, method, batch_size, say))
            say(line(rows[-1]))
            if path is not None:
                write_card(path, rows)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row as it is found."""
    name = f"{row['method']}, batch {row['batch']}"
    if row["median_ms"] is None:
        return f"{name}: {row['error']}"
    return (
        f"{name}: {row['median_ms']:.1f} ms, {row['peak_gib']:.2f} GiB, "
        f"compiled and run once in {row['compile_s']:.1f} s"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Beside the paper's numbers and those of the authors' code."""
    on_cpu = jax.default_backend() == "cpu"
    authors, where = (AUTHORS_CPU, "2 CPU cores") if on_cpu else (AUTHORS_H200, "H200")
    head = f"{'method':<24}{'batch':>6}{'ms':>10}{'GiB':>8}{'compile':>10}"
    lines = [head + f"{'authors, ' + where:>22}{'paper, A10G':>14}"]
    for row in rows:
        method, batch = row["method"], row["batch"]
        plain = method.replace(Form.KERNEL.value, Form.PARALLEL.value)
        own = ["-"] * 3
        if row["median_ms"] is not None:
            own = [f"{row['median_ms']:.1f}", f"{row['peak_gib']:.2f}", f"{row['compile_s']:.1f} s"]
        theirs = [_cell(source.get(plain, {}).get(batch), row["median_ms"]) for source in (authors, PAPER)]
        lines.append(
            f"{method:<24}{batch:>6}{own[0]:>10}{own[1]:>8}{own[2]:>10}{theirs[0]:>22}{theirs[1]:>14}"
        )
    return "\n".join(lines)


def _cell(theirs: int | None, ours: float | None) -> str:
    if theirs is None:
        return "-"
    return f"{theirs}" if not ours else f"{theirs} ({theirs / ours:.0f}x)"
