"""How good a model is."""

from svae.evaluation.segmentation import SegmentationScores as SegmentationScores
from svae.evaluation.segmentation import score_segmentation as score_segmentation
