"""Training: steps, loops, stages, checkpoints."""
