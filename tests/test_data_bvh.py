import numpy as np
import pytest

from svae.data import DataError, Skeleton, load

HIERARCHY = """HIERARCHY
ROOT Hips
{
    OFFSET 0 0 0
    CHANNELS 6 Xposition Yposition Zposition %s
    JOINT Left Knee {
        OFFSET 1 0 0
        CHANNELS 3 Zrotation Xrotation Yrotation
        End Site
        {
            OFFSET 0 2 0
        }
    }
    JOINT Head
    {
        OFFSET 0 3 0
        CHANNELS 3 Zrotation Xrotation Yrotation
    }
}
"""
ZXY = "Zrotation Xrotation Yrotation"


def write(path, rows, order=ZXY, header=None):
    header = f"MOTION\nFrames: {len(rows)}\nFrame Time: 0.0083333\n" if header is None else header
    path.write_text(HIERARCHY % order + header + "".join(" ".join(map(str, row)) + "\n" for row in rows))
    return path


def frame(position=(0, 0, 0), root=(0, 0, 0), knee=(0, 0, 0), head=(0, 0, 0)):
    return [*position, *root, *knee, *head]


def test_rest_pose(tmp_path):
    recordings = load(write(tmp_path / "walk.bvh", [frame()] * 2))
    assert recordings.names == ("walk",)
    assert recordings.rate == pytest.approx(120, rel=1e-4)
    assert recordings.channels[:5] == ("Hips.x", "Hips.y", "Hips.z", "Left Knee.x", "Left Knee.y")
    assert recordings.skeleton == Skeleton(("Hips", "Left Knee", "Head"), (-1, 0, 0))
    np.testing.assert_allclose(recordings[0].values, [[0, 0, 0, 1, 0, 0, 0, 3, 0]] * 2)


def test_ends_of_limbs_and_scale(tmp_path):
    path = write(tmp_path / "walk.bvh", [frame(knee=(90, 0, 0))] * 2)
    recordings = load(path, ends=True, scale=0.5)
    assert recordings.skeleton == Skeleton(("Hips", "Left Knee", "Left Knee.end", "Head"), (-1, 0, 1, 0))
    # a quarter turn about z sends the end's offset (0, 2, 0) to (-2, 0, 0)
    expected = 0.5 * np.array([0, 0, 0, 1, 0, 0, -1, 0, 0, 0, 3, 0])
    np.testing.assert_allclose(recordings[0].values, [expected] * 2, atol=1e-12)


# Quarter turns in two orders, applied to the knee's offset (1, 0, 0) and the head's (0, 3, 0). With Z then X
# about turning axes the matrix is Rz Rx: x -> y, y -> Rz z = z. With X then Z it is Rx Rz: x -> Rx y = z,
# y -> Rx(-x) = -x. With Y then Z it is Ry Rz: x -> Ry y = y, y -> Ry(-x) = z.
ORDERS = {
    ZXY: ((90, 90, 0), (0, 1, 0), (0, 0, 3)),
    "Xrotation Zrotation Yrotation": ((90, 90, 0), (0, 0, 1), (-3, 0, 0)),
    "Yrotation Xrotation Zrotation": ((90, 0, 90), (0, 1, 0), (0, 0, 3)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_order_of_rotations(tmp_path, order):
    angles, knee, head = ORDERS[order]
    path = write(tmp_path / "walk.bvh", [frame((7, 8, 9), angles)] * 2, order)
    moving = load(path, fixed_root=False)[0].values.reshape(2, 3, 3)
    np.testing.assert_allclose(moving[0], np.add([(0, 0, 0), knee, head], (7, 8, 9)), atol=1e-12)
    still = load(path)[0].values
    np.testing.assert_allclose(still, [[0, 0, 0, 1, 0, 0, 0, 3, 0]] * 2, atol=1e-12)


def test_rotations_of_parents_add_up(tmp_path):
    # root and knee both turn 45 degrees about z: the end of the leg points along -x
    path = write(tmp_path / "walk.bvh", [frame(root=(45, 0, 0), knee=(45, 0, 0))] * 2)
    end = load(path, fixed_root=False, ends=True).select_channels([f"Left Knee.end.{axis}" for axis in "xyz"])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(end[0].values[0], [half - 2, half, 0], atol=1e-12)


def test_angles(tmp_path):
    rows = np.arange(24.0).reshape(2, 12)
    recordings = load(write(tmp_path / "walk.bvh", rows.tolist()), angles=True)
    assert recordings.channels[2:4] == ("Hips.Zposition", "Hips.Zrotation")
    assert recordings.skeleton is None
    np.testing.assert_array_equal(recordings[0].values, rows)


def test_folder(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.bvh", [frame()] * 3)
    assert load(tmp_path).lengths == (3, 3)
    assert load(tmp_path).skeleton is not None


BAD = {
    "width": (
        lambda path: write(path, [frame(), frame()[:-1]]),
        r"frame 1 .* has 11 numbers, .* 12 channels",
    ),
    "count": (
        lambda path: write(path, [frame()], header="MOTION\nFrames: 3\nFrame Time: 0.1\n"),
        "3 frames are announced, but there are 1",
    ),
    "header": (
        lambda path: write(path, [frame()], header="MOTION\nFrames: 3\n"),
        "must begin with the lines",
    ),
    "text": (lambda path: write(path, [frame(), ["a", *frame()[1:]]]), "not a number: .*'a'"),
    "channel": (
        lambda path: write(path, [frame()] * 2, "Zrotation Xrotation Wrotation"),
        "column 'Hips': unknown channel 'Wrotation'",
    ),
    "number": (
        lambda path: write(path, [frame()] * 2, "Zrotation"),
        "cannot understand the line 'CHANNELS 6",
    ),
    "braces": (
        lambda path: path.write_text(
            "HIERARCHY\nROOT a\n{\nOFFSET 0 0 0\nMOTION\nFrames: 0\nFrame Time: 1\n"
        ),
        "one tree with one root",
    ),
    "short": (lambda path: write(path, [frame()]), "recording 'walk': too short"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_files(tmp_path, bad):
    make, message = BAD[bad]
    make(tmp_path / "walk.bvh")
    with pytest.raises(DataError, match=r"walk\.bvh[:,] .*" + message):
        load(tmp_path / "walk.bvh")


def test_joints_that_cannot_move_need_no_channels(tmp_path):
    path = write(tmp_path / "walk.bvh", [frame(knee=(90, 0, 0)), frame(knee=(0, 0, 0))])
    recordings = load(path, ends=True, still=False, scale=0.5)
    assert recordings.channels == ("Left Knee.end.x", "Left Knee.end.y", "Left Knee.end.z")
    np.testing.assert_allclose(recordings[0].values, [[-0.5, 0, 0], [0.5, 1, 0]], atol=1e-12)
    assert recordings.skeleton.joints == ("Hips", "Left Knee", "Left Knee.end", "Head")
    assert recordings.skeleton.still == ((0, (0, 0, 0)), (1, (0.5, 0, 0)), (3, (0, 1.5, 0)))
    assert (
        load(path, ends=True, still=False, fixed_root=False).num_features == 12
    )  # a root that moves moves all


def test_fewer_frames(tmp_path):
    rows = [frame(knee=(angle, 0, 0)) for angle in range(10)]
    whole, fewer = (load(write(tmp_path / "walk.bvh", rows), angles=True, every=n) for n in (1, 4))
    assert fewer.rate == pytest.approx(30, rel=1e-4)
    np.testing.assert_array_equal(fewer[0].values, whole[0].values[::4])
    with pytest.raises(DataError, match="every must be a whole number from 1 on, got 0"):
        load(tmp_path / "walk.bvh", every=0)
