"""GPU kernels: the same formulas as everywhere, fused. `svae.chains` chooses between them and plain form."""
