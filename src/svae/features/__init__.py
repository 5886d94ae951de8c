"""Feature networks for the Frechet distance: classifiers, their training, and distances by them."""

from svae.features.artifact import FeatureNetwork as FeatureNetwork
from svae.features.artifact import load_features as load_features
from svae.features.artifact import save_features as save_features
from svae.features.classifier import Classifier as Classifier
from svae.features.command import train_features as train_features
from svae.features.distance import NetworkDistance as NetworkDistance
from svae.features.distance import frechet_between as frechet_between
from svae.features.distance import require_same_network as require_same_network
from svae.features.efficientnet import EfficientNet as EfficientNet
from svae.features.labelled import LabelledWindows as LabelledWindows
from svae.features.labelled import label_recordings as label_recordings
from svae.features.labelled import labelled_windows as labelled_windows
from svae.features.labelled import windows_from_arrays as windows_from_arrays
from svae.features.residual import ResidualClassifier as ResidualClassifier
from svae.features.search import search_residual as search_residual
from svae.features.training import Recipe as Recipe
from svae.features.training import train_classifier as train_classifier
