"""Data: recordings in memory and in files, windows, scaling, built-in sets and a description.

`as_recordings` accepts whatever users have; everything else works on its result.
"""

from svae.data.audio import chunks as chunks
from svae.data.audio import power_spectrogram as power_spectrogram
from svae.data.audio import trim as trim
from svae.data.convert import as_recordings as as_recordings
from svae.data.description import Channel as Channel
from svae.data.description import Description as Description
from svae.data.description import describe as describe
from svae.data.errors import DataError as DataError
from svae.data.files import load as load
from svae.data.guesses import interpolate as interpolate
from svae.data.guesses import repeat_last as repeat_last
from svae.data.human36m import validation_starts as validation_starts
from svae.data.human36m import validation_windows as validation_windows
from svae.data.mocap import mocap6 as mocap6
from svae.data.recordings import Recording as Recording
from svae.data.recordings import Recordings as Recordings
from svae.data.recordings import Skeleton as Skeleton
from svae.data.scaling import Standardizer as Standardizer
from svae.data.sets import set_name as set_name
from svae.data.splits import SPLITS as SPLITS
from svae.data.splits import Split as Split
from svae.data.synthetic import laplacian as laplacian
from svae.data.windowing import Places as Places
from svae.data.windowing import Windows as Windows
from svae.data.windowing import cut as cut
from svae.data.windowing import places as places
from svae.data.windowing import stitch as stitch
from svae.data.windowing import windows as windows
