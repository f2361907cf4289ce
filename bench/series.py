"""The data: series of consecutive checkpoint sets, found in folders or made."""

import dataclasses
import pathlib
import re
import shutil
import subprocess

import measure


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    sets: list  # (step, folder), in order
    synthetic: bool = False

    def set_bytes(self):
        return [measure.tree_bytes(folder)[0] for _, folder in self.sets]


def _step(name, otherwise):
    digits = re.findall(r"\d+", name)
    return int(digits[-1]) if digits else otherwise


def _series_of(name, folders):
    return Series(name, [(_step(folder.name, number), folder) for number, folder in enumerate(folders, 1)])


def find_real(data, work):
    """The series below `data`: a folder that holds files is a set, and the folder around its sets is a series.

    Sets are copied to `work`, as they would lie on the file system of a run; what is stored as .zst is unpacked."""
    series = []
    groups = {}
    for path in measure.files_below(data):
        parent = path.parent
        if parent != data and parent.parent != data:
            groups.setdefault(parent.parent, set()).add(parent)
    for group in sorted(groups):
        name = str(group.relative_to(data)).replace("/", "_")
        folders = []
        for folder in sorted(groups[group]):
            copy = measure.fresh(work / name / folder.name)
            for path in sorted(folder.iterdir()):
                if path.suffix == ".zst":
                    subprocess.run(["zstd", "-q", "-d", "--long=27", str(path), "-o", str(copy / path.stem)], check=True)
                elif path.is_file():
                    shutil.copyfile(path, copy / path.name)
            folders.append(copy)
        series.append(_series_of(name, folders))
    return series


def all_in_one(series, work):
    """One set that holds all sets of all series (hard links): large enough that starting a program does not count."""
    folder = measure.fresh(work / "all_real" / "set_1")
    for one in series:
        for _, source in one.sets:
            shutil.copytree(source, folder / one.name / source.name, copy_function=_link)
    return Series("all_real", [(1, folder)])


def _link(source, target):
    pathlib.Path(target).hardlink_to(source)


def make_synthetic(program, work, name, run_blocks, sets, edge, variables=8):
    folder = measure.fresh(work / name)
    subprocess.run([program, str(folder), "--sets", str(sets), "--variables", str(variables), "--edge", str(edge),
                    "--changed-share", "0.3", "--run-blocks", str(run_blocks), "--noise", "1e-6"], check=True)
    made = _series_of(name, sorted(folder.iterdir()))
    return dataclasses.replace(made, synthetic=True)


def one_set_of(series, work):
    """One set that holds all sets of a series (hard links): many times the size of one."""
    folder = measure.fresh(work / (series.name + "_as_one") / "set_1")
    for _, source in series.sets:
        shutil.copytree(source, folder / source.name, copy_function=_link)
    return folder
