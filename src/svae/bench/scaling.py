"""How the time of a sweep of inference grows with the number of steps, states, dimensions and sequences.

One size is varied at a time, the others stay. A sweep updates both blocks of a switching linear dynamical
system once; `memory` is what it needs beyond its arguments.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from svae.bench.engine import draw_inputs, sweep_once
from svae.bench.setting import Setting
from svae.bench.timing import Program, Say, compile_program, machine, time_in_turns
from svae.chains import Form
from svae.pgm import SLDS

SIZES = {"num_steps": "T", "num_states": "K", "latent_dim": "D", "batch": "B"}
BASE = Setting(batch=4, num_steps=256, num_states=16, latent_dim=8, repeats=3, budget=10.0)
GROWTH = {
    "num_steps": (256, 1024, 4096, 16384),
    "num_states": (8, 16, 32, 64),
    "latent_dim": (4, 8, 16, 32),
    "batch": (1, 4, 16, 64),
}
LONG = 1_000, 10_000, 100_000  # steps of a single sequence


def settings(long: bool) -> Iterable[tuple[str, Setting]]:
    """What is varied, and the sizes of each run."""
    if long:
        for steps in LONG:
            yield "num_steps", BASE._replace(num_steps=steps, batch=1, repeats=1)
        return
    for name, values in GROWTH.items():
        for value in values:
            size: Any = {name: value}
            yield name, BASE._replace(**size)


def measure(varied: str, setting: Setting, form: Form, say: Say) -> dict[str, Any]:
    """One row."""
    _, theta, potentials, start, _ = draw_inputs(setting)
    sweep = partial(sweep_once, model=SLDS(setting.num_states, setting.latent_dim, form))
    program = Program("sweep", form.value, sweep, (theta, potentials, start))
    (timing,) = time_in_turns(
        [compile_program(program, lambda _: None)], setting.repeats, setting.budget, lambda _: None
    )
    sizes = {letter: getattr(setting, name) for name, letter in SIZES.items()}
    row = {"varied": SIZES[varied], **sizes, "form": form.value, "median_ms": 1e3 * timing.seconds}
    row |= {"memory_mib": timing.temp_bytes / 2**20, "compile_s": timing.compile_seconds}
    say(line(row))
    return row


def run(forms: Iterable[Form], long: bool, say: Say) -> dict[str, Any]:
    """All rows, ready for JSON."""
    forms = list(forms)
    rows = [measure(name, setting, form, say) for name, setting in settings(long) for form in forms]
    return {"machine": machine(), "rows": rows}


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    sizes = "  ".join(f"{letter}={row[letter]:<6}" for letter in SIZES.values())
    return (
        f"{row['varied']}: {sizes}  {row['form']:<11}{row['median_ms']:>10.2f} ms"
        f"{row['memory_mib']:>10.1f} MiB{row['compile_s']:>7.1f} s to compile"
    )
