"""Is this machine ready? Versions, devices, traps that others fell into, and a tiny fit."""

import importlib.metadata
import os
import platform
import time
from typing import NamedTuple

PACKAGES = (
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
)

# What JAX takes for yes in the environment.
YES = ("y", "yes", "t", "true", "on", "1")


class Finding(NamedTuple):
    """One line of the diagnosis."""

    good: bool
    what: str
    advice: str = ""


def versions() -> list[Finding]:
    """What is installed."""
    found = [Finding(True, f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")]
    for name in PACKAGES:
        try:
            found.append(Finding(True, f"{name} {importlib.metadata.version(name)}"))
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(False, f"{name} is missing", f"pip install {name}"))
    return found


def devices() -> list[Finding]:
    """What JAX can compute on."""
    import jax

    try:
        names = [f"{d.device_kind} ({d.platform})" for d in jax.devices()]
    except RuntimeError as error:
        return [Finding(False, "JAX finds no device", str(error).partition("\n")[0])]
    found = [Finding(True, f"{len(names)} device(s): {', '.join(names)}, {os.cpu_count()} CPU cores")]
    if jax.default_backend() == "cpu" and os.path.exists("/proc/driver/nvidia/version"):
        found.append(
            Finding(False, "there is an NVIDIA GPU that JAX does not use", "pip install 'svae[cuda12]'")
        )
    return found


def traps() -> list[Finding]:
    """Settings of this process that are known to hurt."""
    found = []
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" in flags:
        found.append(
            Finding(False, "XLA_FLAGS splits the CPU into several devices", "unset it unless you mean it")
        )
    if os.environ.get("JAX_DISABLE_JIT", "").lower() in YES:
        found.append(Finding(False, "JAX_DISABLE_JIT is set", "training would take for ever: unset it"))
    if os.environ.get("JAX_DEBUG_NANS", "").lower() in YES:
        found.append(Finding(False, "JAX_DEBUG_NANS is set", "inference looks at NaN on purpose: unset it"))
    return found or [Finding(True, "no harmful settings in the environment")]


def self_test() -> Finding:
    """Fit a very small model to very little data."""
    import numpy as np

    from svae.estimators import SwitchingSVAE

    start = time.perf_counter()
    wave = np.sin(np.arange(80)[:, None] / np.array([3.0, 5.0, 7.0]))
    model = SwitchingSVAE(
        2,
        2,
        pretrain_steps=4,
        joint_steps=2,
        settings={"model.hidden": "[8]", "dynamics.laps": 2, "chunk": 2},
        random_state=0,
    )
    states = model.fit([wave, -wave]).segment([wave])[0]
    seconds = time.perf_counter() - start
    if states.shape != (80,) or not np.isfinite(model.score([wave])):
        return Finding(False, "a tiny fit gave nonsense", "please report this with the lines above")
    return Finding(True, f"a tiny fit works ({seconds:.0f} s, most of it compiling)")


def diagnose() -> list[Finding]:
    """All of it."""
    found = versions() + devices() + traps()
    try:
        return [*found, self_test()]
    except Exception as error:  # whatever it is, the user should read it here
        return [*found, Finding(False, f"a tiny fit failed: {type(error).__name__}: {error}")]
