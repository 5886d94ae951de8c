"""Motion capture in BVH files: a skeleton and the angles of its joints over time."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from svae.data.errors import DataError
from svae.data.recordings import Recording, Recordings, Skeleton


@dataclass(frozen=True)
class Joint:
    """One joint, or the end of a limb, which has no channels."""

    name: str
    parent: int
    offset: tuple[float, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Motion:
    """What a BVH file says: angles in degrees and positions, one column for each channel of each joint."""

    joints: tuple[Joint, ...]
    values: Float[np.ndarray, "time channels"]
    frame_time: float


def read_bvh(
    path: Path,
    angles: bool = False,
    fixed_root: bool = True,
    scale: float = 1.0,
    ends: bool = False,
    still: bool = True,
    every: int = 1,
) -> Recordings:
    """Joint positions as channels Hips.x, Hips.y, Hips.z, ..., in the units of the file times `scale`.

    With `fixed_root` the root stays at the origin and keeps its orientation: what remains is posture. With
    `ends` the ends of limbs count as joints. Without `still`, joints that cannot move, as hips on a fixed
    root, have no channels. With `angles` the channels of the file are returned as they are. Of all frames,
    each `every`-th is kept: with `every=4`, 120 frames per second become 30.
    """
    if not isinstance(every, int) or every < 1:
        raise DataError(f"every must be a whole number from 1 on, got {every}")
    motion = parse_bvh(path.read_text(encoding="utf-8-sig"))
    motion = replace(motion, values=motion.values[::every], frame_time=motion.frame_time * every)
    rate = float(f"{1 / motion.frame_time:.6g}")
    if angles:
        names = tuple(f"{joint.name}.{channel}" for joint in motion.joints for channel in joint.channels)
        return Recordings((Recording(path.stem, motion.values),), names, rate)
    positions = joint_positions(motion, fixed_root) * scale
    # ends of limbs have no children, so the order of the others is enough to renumber the parents
    kept = [i for i, joint in enumerate(motion.joints) if joint.channels or ends]
    joints = tuple(motion.joints[i].name for i in kept)
    parents = tuple(-1 if motion.joints[i].parent < 0 else kept.index(motion.joints[i].parent) for i in kept)
    places = lambda j: tuple(float(scale * x) for x in joint_positions(_at_rest(motion), fixed_root)[0, j])
    unmoved = [] if still or not fixed_root else [j for j in _cannot_move(motion) if j in kept]
    skeleton = Skeleton(joints, parents, tuple((kept.index(j), places(j)) for j in unmoved))
    values = positions[:, [kept[j] for j in skeleton.moving]].reshape(len(positions), -1)
    return Recordings((Recording(path.stem, values),), skeleton.channels, rate, skeleton=skeleton)


def _at_rest(motion: Motion) -> Motion:
    """One frame in which nothing is turned."""
    return replace(motion, values=np.zeros((1, motion.values.shape[1])))


def _cannot_move(motion: Motion) -> list[int]:
    """With a fixed root: the root, what hangs on it, and what lies where one of these is."""
    found: list[int] = []
    for j, joint in enumerate(motion.joints):
        placed = any(channel.endswith("position") for channel in joint.channels)
        held = joint.parent in found and (motion.joints[joint.parent].parent < 0 or not any(joint.offset))
        if joint.parent < 0 or (held and not placed):
            found.append(j)
    return found


def joint_positions(motion: Motion, fixed_root: bool = False) -> Float[np.ndarray, "time joints 3"]:
    """Forward kinematics: x_j = x_parent + R_parent p_j, R_j = R_parent r_j.

    r_j is the product of the rotations of joint j in the order of its channels. p_j is its offset, or its
    position channels where it has them.
    """
    from scipy.spatial.transform import Rotation

    time = len(motion.values)
    positions = np.zeros((time, len(motion.joints), 3))
    rotations = np.broadcast_to(np.eye(3), (len(motion.joints), time, 3, 3)).copy()
    column = 0
    for j, joint in enumerate(motion.joints):
        local = np.tile(np.asarray(joint.offset), (time, 1))
        own = motion.values[:, column : column + len(joint.channels)]
        column += len(joint.channels)
        for i, channel in enumerate(joint.channels):
            if channel.endswith("position"):
                local[:, "XYZ".index(channel[0])] = own[:, i]
        turns = [i for i, channel in enumerate(joint.channels) if channel.endswith("rotation")]
        if turns:
            order = "".join(joint.channels[i][0] for i in turns)  # capitals: about the axes that turn along
            rotations[j] = Rotation.from_euler(order, own[:, turns], degrees=True).as_matrix()
        if joint.parent >= 0:
            turned = np.einsum("tij,tj->ti", rotations[joint.parent], local)
            positions[:, j] = positions[:, joint.parent] + turned
            rotations[j] = rotations[joint.parent] @ rotations[j]
        elif fixed_root:
            rotations[j] = np.eye(3)
        else:
            positions[:, j] = local
    return positions


def parse_bvh(text: str) -> Motion:
    """Reads the two parts of a BVH file, HIERARCHY and MOTION."""
    if not text.lstrip().startswith("HIERARCHY") or "MOTION" not in text:
        raise DataError("not a BVH file: it must have the parts HIERARCHY and MOTION")
    hierarchy, motion = text.split("MOTION", 1)
    joints = _parse_hierarchy(hierarchy)
    count, frame_time, rows = _parse_motion(motion)
    width = sum(len(joint.channels) for joint in joints)
    if len(rows) != count:
        raise DataError(f"{count} frames are announced, but there are {len(rows)}; is the file whole?")
    for number, row in enumerate(rows):
        if len(row) != width:
            raise DataError(
                f"frame {number} (counted from 0) has {len(row)} numbers, the joints have {width} channels"
            )
    try:
        values = np.array(rows, np.float64).reshape(count, width)
    except ValueError as error:
        raise DataError(f"the motion holds what is not a number: {error}") from error
    return Motion(joints, values, frame_time)


def _parse_hierarchy(text: str) -> tuple[Joint, ...]:
    joints: list[Joint] = []
    open_joints: list[int] = []
    heading: tuple[str, ...] = ()
    for line in text.replace("{", "\n{\n").replace("}", "\n}\n").splitlines():
        words = line.split()
        match words:
            case ["ROOT" | "JOINT", *name] if name:
                heading = (" ".join(name),)
            case ["End", "Site"]:
                heading = (f"{joints[open_joints[-1]].name}.end",) if open_joints else ()
            case ["{"] if heading:
                joints.append(Joint(heading[0], open_joints[-1] if open_joints else -1, (0.0, 0.0, 0.0), ()))
                open_joints.append(len(joints) - 1)
                heading = ()
            case ["}"] if open_joints:
                open_joints.pop()
            case ["OFFSET", x, y, z] if open_joints:
                old = joints[open_joints[-1]]
                joints[open_joints[-1]] = Joint(
                    old.name, old.parent, (float(x), float(y), float(z)), old.channels
                )
            case ["CHANNELS", number, *names] if open_joints and int(number) == len(names):
                old = joints[open_joints[-1]]
                joints[open_joints[-1]] = Joint(old.name, old.parent, old.offset, _known(old.name, names))
            case [] | ["HIERARCHY"]:
                pass
            case _:
                raise DataError(f"cannot understand the line '{line.strip()}' of the hierarchy")
    if open_joints or sum(joint.parent < 0 for joint in joints) != 1:
        raise DataError("the hierarchy must be one tree with one root and closed braces; is the file whole?")
    return tuple(joints)


def _known(joint: str, channels: list[str]) -> tuple[str, ...]:
    for channel in channels:
        if channel[:1] not in tuple("XYZ") or channel[1:] not in ("position", "rotation"):
            raise DataError(f"unknown channel '{channel}'", column=joint)
    return tuple(channels)


def _parse_motion(text: str) -> tuple[int, float, list[list[str]]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    match lines[:2]:
        case [["Frames:", count], ["Frame", "Time:", step]] if float(step) > 0:
            return int(count), float(step), lines[2:]
    raise DataError("the motion must begin with the lines 'Frames: N' and 'Frame Time: SECONDS'")
