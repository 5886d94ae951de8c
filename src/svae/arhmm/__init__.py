"""A variational auto-regressive hidden Markov model whose number of states adapts to the data."""

from svae.arhmm.durations import price_for_duration as price_for_duration
from svae.arhmm.emissions import Regressions as Regressions
from svae.arhmm.emissions import RegressionStats as RegressionStats
from svae.arhmm.emissions import outer_features as outer_features
from svae.arhmm.emissions import posterior as posterior
from svae.arhmm.emissions import stats_from_flat as stats_from_flat
from svae.arhmm.fit import Effort as Effort
from svae.arhmm.fit import fit_arhmm as fit_arhmm
from svae.arhmm.known import with_known_states as with_known_states
from svae.arhmm.local import pad as pad
from svae.arhmm.model import Fit as Fit
from svae.arhmm.model import Prior as Prior
from svae.arhmm.model import paths as paths
from svae.arhmm.transitions import StickyPrior as StickyPrior
