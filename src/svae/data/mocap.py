"""Six recordings of exercises with a label for each frame, which come with the library."""

from importlib import resources

from svae.data.arrays import read_npz
from svae.data.recordings import Recordings


def mocap6() -> Recordings:
    """The six motion-capture recordings of Fox, Hughes, Sudderth and Jordan (2014): 2,058 labelled frames.

    Twelve channels (height of the root, and joint angles in degrees) at 10 frames per second, with means
    close to zero over each recording; twelve exercises. The frames are those that have labels: bnpy, from
    which the data come, also knows one frame before each recording, which is left out here. See
    ATTRIBUTION.md beside the data for source, citation and licence.
    """
    source = resources.files("svae.data") / "mocap6" / "recordings.npz"
    with resources.as_file(source) as path:
        return read_npz(path)
