"""How good a model is."""

from svae.evaluation.bounds import BoundEstimate as BoundEstimate
from svae.evaluation.bounds import effective_sample_size as effective_sample_size
from svae.evaluation.bounds import evidence_lower_bound as evidence_lower_bound
from svae.evaluation.bounds import importance_weighted as importance_weighted
from svae.evaluation.bounds import nats_per_scalar as nats_per_scalar
from svae.evaluation.bounds import shared_importance_weighted_bound as shared_importance_weighted_bound
from svae.evaluation.draws import DrawScores as DrawScores
from svae.evaluation.draws import average_draw_scores as average_draw_scores
from svae.evaluation.draws import crps as crps
from svae.evaluation.draws import energy_score as energy_score
from svae.evaluation.draws import interval_coverage as interval_coverage
from svae.evaluation.draws import score_draws as score_draws
from svae.evaluation.edges import EdgeJump as EdgeJump
from svae.evaluation.edges import edge_jumps as edge_jumps
from svae.evaluation.edges import joined as joined
from svae.evaluation.frechet import FrechetEstimate as FrechetEstimate
from svae.evaluation.frechet import Moments as Moments
from svae.evaluation.frechet import Spread as Spread
from svae.evaluation.frechet import frechet_distance as frechet_distance
from svae.evaluation.frechet import frechet_estimate as frechet_estimate
from svae.evaluation.frechet import frechet_floor as frechet_floor
from svae.evaluation.frechet import moments_from_features as moments_from_features
from svae.evaluation.segmentation import BoundaryScores as BoundaryScores
from svae.evaluation.segmentation import SegmentationScores as SegmentationScores
from svae.evaluation.segmentation import boundary_f1 as boundary_f1
from svae.evaluation.segmentation import score_segmentation as score_segmentation
