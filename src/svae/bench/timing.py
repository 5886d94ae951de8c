"""Compile, then time, several programs in turns, so that their ratios come from one run."""

import os
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import jax

from svae.compiling import OFTEN, compiling, keeping_garbage

SHORTEST = 0.1  # seconds: shorter calls are timed several at once

Say = Callable[[str], None]  # receives one line of progress


class Program(NamedTuple):
    """A function to time; programs of one group do the same job."""

    group: str
    name: str
    function: Callable
    arguments: tuple


class Timing(NamedTuple):
    """One row of a report; times in seconds, the median over `runs`."""

    group: str
    name: str
    seconds: float
    compile_seconds: float
    temp_bytes: int  # peak room for intermediate results; 0 where the compiler does not tell
    runs: int


class Compiled(NamedTuple):
    """A program, ready to run."""

    program: Program
    executable: Any
    seconds: float

    def run(self) -> Any:
        """Its result, complete."""
        return jax.block_until_ready(self.executable(*self.program.arguments))

    @property
    def temp_bytes(self) -> int:
        """Room for intermediate results."""
        return int(getattr(self.executable.memory_analysis(), "temp_size_in_bytes", 0))


def compile_program(program: Program, say: Say) -> Compiled:
    """Compile, and note how long that takes."""
    say(f"compiling {program.group}, {program.name}")
    compiled = jax.jit(program.function, **compiling(OFTEN))
    with keeping_garbage():
        executable, seconds = timed(lambda: compiled.lower(*program.arguments).compile())
    return Compiled(program, executable, seconds)


def time_in_turns(programs: list[Compiled], repeats: int, budget: float, say: Say) -> list[Timing]:
    """Time each program `repeats` times, in turns, after one run to warm up.

    A time is the mean over as many calls as fill a tenth of a second. A program that has used up
    `budget` seconds drops out, but each is timed at least once.
    """
    calls = [max(1, min(100, int(SHORTEST / timed(compiled.run)[1]))) for compiled in programs]
    times: list[list[float]] = [[] for _ in programs]
    for turn in range(repeats):
        for compiled, count, own in zip(programs, calls, times, strict=True):
            if turn > 0 and count * sum(own) > budget:
                continue
            own.append(timed(lambda: [compiled.run() for _ in range(count)])[1] / count)
            group, name = compiled.program[:2]
            say(f"run {turn + 1} of {repeats}: {group}, {name}: {1e3 * own[-1]:.1f} ms")
    return [
        Timing(c.program.group, c.program.name, median(own), c.seconds, c.temp_bytes, len(own))
        for c, own in zip(programs, times, strict=True)
    ]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def load_average() -> float | None:
    """How many processes have been busy over the last minute, where the system tells."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cpus": os.cpu_count(),
        "processor": platform.machine(),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
