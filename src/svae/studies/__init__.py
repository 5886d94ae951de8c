"""Experiments about the method itself: how good gradients through inference are, and natural ones."""
