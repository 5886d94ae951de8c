import pickle

import h5py
import numpy as np
import pandas as pd
import pyarrow
import pytest

from svae.data import DataError, as_recordings, load

VALUES = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0], [7.0, 8.0]])
LABELS = np.array([0, 0, 1, -1])


def write_npz(path, **arrays):
    np.savez(path, **arrays)


def write_h5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            if name in ("rate", "channels", "label_names"):
                file.attrs[name] = array
            else:
                file[name] = array


def write_npy(path, **arrays):
    (array,) = arrays.values()
    np.save(path, array)


def write_csv(path, **columns):
    pd.DataFrame(columns).to_csv(path, index=False)


def write_parquet(path, **columns):
    pd.DataFrame(columns).to_parquet(path)


containers = pytest.mark.parametrize(
    ("name", "write"), [("a.npz", write_npz), ("a.h5", write_h5), ("a.HDF5", write_h5)]
)
tables = pytest.mark.parametrize(
    ("name", "write"), [("walk.csv", write_csv), ("walk.parquet", write_parquet)]
)


@containers
def test_containers_of_named_arrays(tmp_path, name, write):
    write(
        tmp_path / name,
        day=VALUES,
        night=VALUES[:3].astype(np.float32),
        labels_day=LABELS,
        rate=25,
        channels=["x", "y"],
        label_names=["sit", "run"],
    )
    recordings = load(tmp_path / name)
    assert recordings.names == ("day", "night")
    assert recordings.channels == ("x", "y")
    assert recordings.label_names == ("sit", "run")
    assert recordings.rate == 25
    np.testing.assert_array_equal(recordings["day"].values, VALUES)
    np.testing.assert_array_equal(recordings["day"].labels, LABELS)
    assert recordings["night"].labels is None


@containers
def test_a_batch_as_pypots_stores_it(tmp_path, name, write):
    batch = np.stack([VALUES, VALUES + 1])
    write(tmp_path / name, X=batch, X_ori=batch, y=np.array([0, 1]), labels_X=np.stack([LABELS, LABELS]))
    recordings = load(tmp_path / name, rate=10.0)
    assert recordings.names == ("X_0", "X_1")
    assert recordings.rate == 10
    np.testing.assert_array_equal(recordings["X_1"].values, VALUES + 1)
    np.testing.assert_array_equal(recordings["X_1"].labels, LABELS)


def test_hdf5_groups_and_attributes_of_datasets(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("mouse/day", "mouse/night"):
            file[name] = VALUES
            file[name].attrs["rate"] = 5.0
            file[name].attrs["channels"] = ["x", "y"]
    recordings = load(tmp_path / "a.h5")
    assert recordings.names == ("mouse/day", "mouse/night")
    assert recordings.rate == 5
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["mouse/night"].attrs["rate"] = 6.0
    with pytest.raises(DataError, match=r"a.h5, recording '/mouse/night': the attribute rate differs"):
        load(tmp_path / "a.h5")


def test_npy(tmp_path):
    np.save(tmp_path / "one.npy", VALUES)
    np.save(tmp_path / "batch.npy", np.stack([VALUES, VALUES]))
    assert load(tmp_path / "one.npy").names == ("one",)
    assert load(str(tmp_path / "batch.npy")).names == ("batch_0", "batch_1")
    assert as_recordings(tmp_path / "one.npy", rate=3.0).rate == 3


@tables
def test_tables(tmp_path, name, write):
    write(tmp_path / name, time=np.arange(4) / 50, x=VALUES[:, 0], y=VALUES[:, 1], label=[0, 0, 1, 1])
    recordings = load(tmp_path / name)
    assert recordings.names == ("walk",)
    assert recordings.channels == ("x", "y")
    assert recordings.rate == 50
    np.testing.assert_array_equal(recordings["walk"].values, VALUES)
    np.testing.assert_array_equal(recordings["walk"].labels, [0, 0, 1, 1])


@tables
def test_tables_of_several_recordings(tmp_path, name, write):
    time = pd.date_range("2024-01-01", periods=2, freq="40ms")
    write(
        tmp_path / name,
        Timestamp=[*time, *time],
        recording=["b", "b", "a", "a"],
        x=[1, 2, 3, 4],
        flag=[True, False, True, True],
        label=["run", "sit", "sit", None],
    )
    recordings = load(tmp_path / name)
    assert recordings.names == ("b", "a")
    assert recordings.rate == 25
    np.testing.assert_array_equal(recordings["a"].values, [[3, 1], [4, 1]])
    np.testing.assert_array_equal(recordings["a"].labels, [1, -1])
    assert recordings.label_names == ("run", "sit")


def test_csv_dialects(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x; y\n1;2\n3;4\n")
    assert load(path, delimiter=";").channels == load(path).channels == ("x", "y")
    path.write_text("x\ty\tu, or v\n1\t2\t3\n3\t4\t5\n")
    assert load(path).channels == ("x", "y", "u, or v")
    np.testing.assert_array_equal(load(path)[0].values, [[1, 2, 3], [3, 4, 5]])
    path.write_text("1,2\n3,4\n")
    np.testing.assert_array_equal(load(path, header=False)[0].values, [[1, 2], [3, 4]])
    assert load(path, header=True, min_length=1).channels == ("1", "2")
    with pytest.raises(
        DataError, match=r"a.csv: the first row holds numbers .* write names above it .*header=False"
    ):
        load(path)
    path.write_bytes("﻿x,y\n1,2\n\n3,\n".encode())
    np.testing.assert_array_equal(load(path)[0].values, [[1, 2], [3, np.nan]])


BAD_CSV = {
    "longer row": (
        "x,y\n1,2\n1,2,3\n",
        r"every row must have 2 entries: .*Row #3: Expected 2 columns, got 3",
    ),
    "shorter row": ("x,y\n1,2\n1\n", r"every row must have 2 entries: .*Row #3: Expected 2 columns, got 1"),
    "text": ("x,y\n1,2\n3,n.a\n", r"column 'y': 'n.a' in row 1"),
    "infinity": ("x,y\n1,2\n3,inf\n", r"recording 'a', column 'y': infinite value in row 1"),
    "no values": ("x,y\n1,\n3,\n", r"column 'y': all entries are missing"),
    "one row": ("x,y\n1,2\n", r"recording 'a': too short: 1 of at least 2 frames"),
    "time alone": ("time\n1\n2\n", "there are no columns with data"),
    "uneven": ("t,x\n0,1\n1,2\n5,3\n6,4\n7,5\n", r"recording 'a': time is not evenly spaced: 4 s from row 1"),
    "index": (",x\n0,1\n1,2\n", "column 0 .* has no name"),
    "twice": ("x,x\n1,2\n3,4\n", "column 'x': two columns have this name"),
    "empty": ("", "the file is empty"),
    "no rows": ("recording,x\n", "recording 'a': the table has no rows"),
}


@pytest.mark.parametrize("bad", BAD_CSV)
def test_bad_csv(tmp_path, bad):
    text, message = BAD_CSV[bad]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=r"a\.csv[:,] .*" + message):
        load(tmp_path / "a.csv")


BAD_ARRAYS = {
    "one axis": ({"day": VALUES[0]}, r"recording 'day': shape \(2,\); expected"),
    "text": ({"day": np.array([[b"1"], [b"hot"]])}, "recording 'day', column '0': 'hot' in row 1"),
    "complex": ({"day": 1j * VALUES}, "recording 'day': complex numbers"),
    "infinity": ({"day": VALUES * np.inf}, "recording 'day', column 'channel_0': infinite value in row 0"),
    "channels": ({"day": VALUES, "channels": ["x"]}, "recording 'day': 2 columns, but there are 1 channels"),
    "widths": ({"day": VALUES, "week": VALUES[:, :1]}, "recording 'week': 1 columns, but there are 2"),
    "labels": ({"day": VALUES, "labels_day": LABELS[:2]}, "recording 'day': labels_day must be integers of"),
    "labels of none": (
        {"day": VALUES, "labels_night": LABELS},
        "labels_night, but no recording of this name",
    ),
    "rate": ({"day": VALUES, "rate": [1.0, 2.0]}, "rate must be one number"),
    "nothing": ({"rate": 1.0}, "no recordings"),
    "short": ({"day": VALUES, "night": VALUES[:1]}, "recording 'night': too short"),
}


@pytest.mark.parametrize("bad", BAD_ARRAYS)
@containers
def test_bad_arrays(tmp_path, name, write, bad):
    arrays, message = BAD_ARRAYS[bad]
    write(tmp_path / name, **arrays)
    with pytest.raises(DataError, match=rf"{name}[:,] .*" + message):
        load(tmp_path / name)


def test_python_objects_in_npz(tmp_path):
    np.savez(tmp_path / "a.npz", day=np.array([[1, "x"]], dtype=object))
    with pytest.raises(DataError, match=r"a.npz, recording 'day': holds Python objects"):
        load(tmp_path / "a.npz")


ENDINGS = ["npz", "npy", "csv", "parquet", "h5", "hdf5", "wav", "flac", "bvh"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("content", [b"", b"\x80\x00 this is no such file \xff" * 9], ids=["empty", "noise"])
def test_corrupt_files(tmp_path, ending, content):
    path = tmp_path / f"broken.{ending}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"broken\.{ending}: "):
        load(path)


def test_cut_off_files(tmp_path):
    for name, write in [("a.npz", write_npz), ("a.h5", write_h5), ("a.npy", write_npy)]:
        write(tmp_path / name, day=np.random.default_rng(0).normal(size=(500, 4)))
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=f"{name}: cannot be read; is the file whole?"):
            load(tmp_path / name)


def test_unknown_endings_places_and_options(tmp_path):
    (tmp_path / "a.mat").write_text("")
    with pytest.raises(DataError, match=r"a.mat: unknown ending '.mat'; known are .npz, .npy, .csv"):
        load(tmp_path / "a.mat")
    with pytest.raises(DataError, match=r"b.csv: no such file or folder; built-in sets are mocap6"):
        load(tmp_path / "b.csv")
    np.save(tmp_path / "a.npy", VALUES)
    with pytest.raises(DataError, match=r"a.npy: unknown option 'header'; this format has none"):
        load(tmp_path / "a.npy", header=True)
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    with pytest.raises(DataError, match=r"a.csv: unknown option 'head'; known are delimiter, header"):
        load(tmp_path / "a.csv", head=True)
    with pytest.raises(DataError, match="`lengths` belongs to one array"):
        as_recordings(tmp_path / "a.csv", lengths=[2])


def test_folder(tmp_path):
    write_csv(tmp_path / "b.csv", x=[1, 2], label=["run", "sit"])
    write_csv(tmp_path / "a.csv", x=[3, 4, 5], label=["lie", "sit", "sit"])
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".hidden.csv").write_text("1")
    recordings = load(tmp_path, rate=30.0)
    assert recordings.names == ("a", "b")
    assert recordings.rate == 30
    assert recordings.label_names == ("lie", "run", "sit")
    np.testing.assert_array_equal(recordings["b"].labels, [1, 2])


def test_folder_of_containers(tmp_path):
    np.savez(tmp_path / "one.npz", day=VALUES)
    np.savez(tmp_path / "two.npz", day=VALUES, night=VALUES)
    assert load(tmp_path).names == ("one", "two/day", "two/night")


def test_bad_folders(tmp_path):
    with pytest.raises(DataError, match=rf"{tmp_path.name}: the folder holds no files of a known kind"):
        load(tmp_path)
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", rate=1.0)
    with pytest.raises(DataError, match=r"a.npz: there are no recordings"):
        load(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.npz").unlink()
    write_csv(tmp_path / "a.csv", x=[1, 2])
    write_csv(tmp_path / "b.csv", y=[1, 2])
    with pytest.raises(
        DataError, match=rf"{tmp_path.name}: recordings 'a' and 'b' have different channels: 'x'"
    ):
        load(tmp_path)
    write_csv(tmp_path / "b.csv", x=[1, "hot"])
    with pytest.raises(DataError, match=r"b.csv, column 'x': 'hot' in row 1"):
        load(tmp_path)
    write_parquet(tmp_path / "b.parquet", x=[1, 2])
    (tmp_path / "b.csv").unlink()
    with pytest.raises(DataError, match=r"different kinds, as a.csv and b.parquet"):
        load(tmp_path)


POINTS = ["nose", "tail"]
TRACKED = np.array([[1.0, 2.0, 0.9, 3.0, 4.0, 0.7], [5.0, 6.0, 0.5, 7.0, 8.0, 1.0], [9, 10, 1, 11, 12, 0.1]])
EXPECTED = np.array([[1, 2, 3, 4], [np.nan, np.nan, 7, 8], [9, 10, np.nan, np.nan]])


def tracked_frame(individuals=()):
    levels = [["network"], POINTS, ["x", "y", "likelihood"]]
    names = ["scorer", "bodyparts", "coords"]
    if individuals:
        levels.insert(1, list(individuals))
        names.insert(1, "individuals")
    columns = pd.MultiIndex.from_product(levels, names=names)
    return pd.DataFrame(np.tile(TRACKED, (1, max(1, len(individuals)))), columns=columns)


def write_pandas_table(path, columns):
    """What pandas writes in its `table` format, as far as it matters: labels are pickled as text."""
    with h5py.File(path, "w") as file:
        group = file.create_group("df_with_missing")
        group.attrs["pandas_type"] = np.bytes_("frame_table")
        rows = np.zeros(3, [("index", "<i8"), ("values_block_0", "<f8", (6,))])
        rows["values_block_0"] = TRACKED
        group["table"] = rows
        group["table"].attrs["values_block_0_kind"] = np.bytes_(pickle.dumps(columns, 0))


def assert_tracked(recordings):
    assert recordings.channels == ("nose.x", "nose.y", "tail.x", "tail.y")
    np.testing.assert_array_equal(recordings[0].values, EXPECTED)


def test_deeplabcut_csv(tmp_path):
    tracked_frame().to_csv(tmp_path / "mouse.csv")
    recordings = load(tmp_path / "mouse.csv", rate=60.0)
    assert recordings.names == ("mouse",)
    assert_tracked(recordings)
    loose = load(tmp_path / "mouse.csv", likelihood=0.0)
    np.testing.assert_array_equal(loose[0].values, TRACKED[:, [0, 1, 3, 4]])


def test_deeplabcut_csv_of_two_animals(tmp_path):
    tracked_frame(["m1", "m2"]).to_csv(tmp_path / "mice.csv")
    recordings = load(tmp_path / "mice.csv")
    assert recordings.channels[:5] == ("m1.nose.x", "m1.nose.y", "m1.tail.x", "m1.tail.y", "m2.nose.x")
    np.testing.assert_array_equal(recordings[0].values, np.tile(EXPECTED, (1, 2)))


def test_bad_deeplabcut_csv(tmp_path):
    tracked_frame().astype(object).replace(7.0, "seven").to_csv(tmp_path / "mouse.csv")
    with pytest.raises(DataError, match=r"mouse.csv, column 'tail.x': 'seven' in row 1"):
        load(tmp_path / "mouse.csv")
    (tmp_path / "mouse.csv").write_text("scorer,a\nbodyparts,nose\ncoords,likelihood\n0,1\n1,1\n")
    with pytest.raises(DataError, match=r"mouse.csv: there are no columns x, y"):
        load(tmp_path / "mouse.csv")
    (tmp_path / "mouse.csv").write_text("scorer,a,b\nbodyparts,nose,nose\ncoords,x,x\n0,1,1\n1,1,1\n")
    with pytest.raises(DataError, match=r"mouse.csv: a point is there twice"):
        load(tmp_path / "mouse.csv")


def test_deeplabcut_h5(tmp_path):
    write_pandas_table(tmp_path / "mouse.h5", [*tracked_frame().columns])
    assert_tracked(load(tmp_path / "mouse.h5"))


def test_h5_runs_nothing_that_it_holds(tmp_path):
    write_pandas_table(tmp_path / "mouse.h5", [pyarrow.ArrowInvalid])
    with pytest.raises(DataError, match=r"mouse.h5: refused to load pyarrow"):
        load(tmp_path / "mouse.h5")


def test_tables_of_pandas_in_h5_are_not_points(tmp_path):
    write_pandas_table(tmp_path / "mouse.h5", list("abcdef"))
    with pytest.raises(DataError, match=r"mouse.h5: pandas wrote this table, but not for DeepLabCut"):
        load(tmp_path / "mouse.h5")


@pytest.mark.parametrize("layout", ["table", "fixed"])
def test_deeplabcut_h5_written_by_pandas(tmp_path, layout):
    tracked_frame().to_hdf(tmp_path / "mouse.h5", key="df_with_missing", format=layout)
    assert_tracked(load(tmp_path / "mouse.h5"))
    pd.DataFrame(TRACKED, columns=list("abcdef")).to_hdf(
        tmp_path / "mouse.h5", key="df", mode="w", format=layout
    )
    with pytest.raises(DataError, match="not for DeepLabCut"):
        load(tmp_path / "mouse.h5")
