"""Models of sequences that all meet one contract."""

from svae.models.base import Batch, Bound, Draws, Latents, Model, Segmentation
from svae.models.svae import SVAE, make_svae, with_graph

__all__ = ["SVAE", "Batch", "Bound", "Draws", "Latents", "Model", "Segmentation", "make_svae", "with_graph"]
