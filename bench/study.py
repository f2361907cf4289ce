#!/usr/bin/env python3
"""Measures `varve study` beside reading the same files and compressing them once with gzip -6.

    bench/study.py --varve build/varve --make-series build/bench/make_series [--quick] [--write FILE]

The data are 1 GB of a synthetic series and, where VARVE_TEST_DATA has them, 1 GB of a real set's files as more ranks.
Both tools find them in the page cache, and take turns. Numbers are medians of --runs runs.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

import measure
import report

TIMES_MAX = 3.0     # as long as reading and gzip -6
MEMORY_MAX = 512 << 20
REAL = "enzo_cosmology64_io32_8ranks"


def synthetic(options, work):
    folder = work / "synthetic"
    sets, edge = (2, 64) if options.quick else (8, 128)
    measure.output([options.make_series, folder, "--sets", str(sets), "--edge", str(edge)])
    return f"synthetic, {sets} sets of one rank", folder


def real(options, work):
    """The files of a real series over and over, as more ranks of it; None if it is not here."""
    data = os.environ.get("VARVE_TEST_DATA")
    source = pathlib.Path(data) / REAL if data else None
    if not source or not source.is_dir():
        return None
    folder = work / "real"
    wanted = 50e6 if options.quick else 1e9
    sets = sorted(path for path in source.iterdir() if path.is_dir())
    copies = max(1, round(wanted / measure.tree_bytes(source)[0]))
    for each in sets:
        files = sorted(each.glob("*.cpu*"))
        (folder / each.name).mkdir(parents=True)
        for copy in range(copies):
            for file in files:
                rank = int(re.search(r"\d+$", file.name)[0]) + copy * len(files)
                shutil.copy(file, folder / each.name / f"XX1000.cpu{rank:04d}")
    return f"{REAL}, {copies} times as many ranks", folder


def measure_one(options, work, folder):
    """The medians of gzip and of the study, and what the study says of itself."""
    measure.warm(folder)
    gzips, studies = [], []
    facts = work / "facts.json"
    for _ in range(options.runs):
        gzips.append(measure.run(["sh", "-c", 'find "$1" -type f | sort | xargs cat | gzip -6 > /dev/null', "sh", folder]))
        studies.append(measure.run([options.varve, "study", folder, "--output", work / "study.html", "--json-file", facts]))
    return measure.median(gzips), measure.median(studies), json.loads(facts.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=pathlib.Path, required=True, help="the program that is measured")
    parser.add_argument("--make-series", type=pathlib.Path, required=True, help="the program that makes the synthetic series")
    parser.add_argument("--work", type=pathlib.Path, help="where to work")
    parser.add_argument("--runs", type=int, default=3, help="runs that medians are taken of (3)")
    parser.add_argument("--quick", action="store_true", help="small data, one run")
    parser.add_argument("--write", type=pathlib.Path, help="put the tables into this Markdown file")
    options = parser.parse_args()
    options.varve, options.make_series = options.varve.resolve(), options.make_series.resolve()
    options.runs = 1 if options.quick else options.runs
    rows, goals = [], []
    with tempfile.TemporaryDirectory(prefix="varve-study-", dir=options.work) as place:
        work = pathlib.Path(place)
        for make in (synthetic, real):
            made = make(options, work)
            if made is None:
                continue
            name, folder = made
            print(f"studying: {name}", file=sys.stderr, flush=True)
            gzip, study, facts = measure_one(options, work, folder)
            times = study.wall_seconds / gzip.wall_seconds
            stages = ", ".join(f"{stage['name']} {stage['seconds']:.1f}" for stage in facts["stages"])
            rows.append([name, f"{measure.tree_bytes(folder)[0] / 1e6:.0f}", f"{gzip.wall_seconds:.1f}",
                         f"{study.wall_seconds:.1f}", f"{times:.2f}", f"{study.cpu_seconds:.1f}",
                         f"{study.peak_bytes / (1 << 20):.0f}", stages])
            goals.append([f"{name}: time, of cat + gzip -6", f"<= {TIMES_MAX:.0f}", f"{times:.2f}", times <= TIMES_MAX])
            goals.append([f"{name}: peak memory", "<= 512 MiB", f"{study.peak_bytes / (1 << 20):.0f} MiB",
                          study.peak_bytes <= MEMORY_MAX])
            shutil.rmtree(folder)
    text = [report.table(["series", "MB", "cat + gzip -6, s", "study, s", "times", "CPU s", "peak MiB", "stages, s"], rows),
            "### What is to be reached\n",
            report.table(["to reach", "wanted", "measured", ""], [[*goal[:3], "met" if goal[3] else "NOT MET"] for goal in goals])]
    print("\n\n".join(text))
    if options.write:
        report.write_marked(options.write, "study.py", "\n\n".join(text))
    return 0 if all(goal[3] for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
