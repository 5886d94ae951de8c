"""Milliseconds of a gradient step as others have them, by method and batch size.

The model is the same everywhere: K=50 states, D=16 latent dimensions, T=250 steps, 10 sweeps.
"""

Milliseconds = dict[str, dict[int, int | None]]

PAPER: Milliseconds = {  # Table 1, on an NVIDIA A10G; None: out of memory
    "implicit, parallel": {1: 603, 32: 922, 64: 1290, 128: 2060},
    "unrolled, parallel": {1: 659, 32: 1080, 64: None, 128: None},
    "implicit, sequential": {1: 2560, 32: 3160, 64: 3290, 128: 3530},
    "unrolled, sequential": {1: 2660, 32: 3290, 64: 3980, 128: None},
}

AUTHORS_H200: Milliseconds = {  # the authors' code on an NVIDIA H200, JAX 0.11.2
    "implicit, parallel": {1: 253, 32: 369, 64: 362, 128: 442},
    "unrolled, parallel": {1: 271, 32: 331, 64: 362, 128: 455},
    "implicit, sequential": {1: 1529, 32: 2577, 64: 2699, 128: 2557},
}

AUTHORS_CPU: Milliseconds = {  # the same on two cores of a CPU
    "implicit, sequential": {1: 284, 8: 1458},
    "implicit, parallel": {1: 444, 8: 2735},
}
