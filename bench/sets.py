#!/usr/bin/env python3
"""Measures saving and restoring series of checkpoint sets, beside the usual tools, and checks what Varve is to reach.

    bench/sets.py --varve build/varve --make-series build/bench/make_series [--quick] [--write FILE]

Every tool works in a fresh folder, with its source in the page cache and earlier writes synced; it restores from a store
that is not in the page cache, but where it says so. Varve and cp with sync make durable what they restore, the others
do not. Every restored set is compared with the saved one. Numbers are medians of --runs runs; the tools take turns, so
that a slow minute of the machine does not fall on one of them. Of a virtual machine, memory is held as HeldMemory in
measure.py says. What is skipped is listed with the reason. Only Python's standard library is used.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import contenders
import measure
import report
import series as data

GIGABYTE = 1e9


@dataclasses.dataclass(frozen=True)
class Result:
    set_bytes: int
    stored_bytes: int
    allocated_bytes: int
    save: measure.Cost
    restore: measure.Cost
    identical: bool

    def save_speed(self):
        return self.set_bytes / self.save.wall_seconds

    def restore_speed(self):
        return self.set_bytes / self.restore.wall_seconds


@dataclasses.dataclass(frozen=True)
class Target:
    what: str
    wanted: str
    measured: str
    met: bool


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.tables = []   # (heading, rows)
        self.targets = []
        self.skipped = []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def available(self, kind):
        reason = kind.missing()
        note = f"{kind.name or kind.__name__}: {reason}"
        if reason and note not in self.skipped:
            self.skipped.append(note)
            self.say(f"skipped: {note}")
        return reason is None

    def attempt(self, what, measurement, *arguments):
        """A measurement whose failure is noted, and does not end the others."""
        try:
            measurement(*arguments)
        except measure.CommandFailed as failure:
            self.skipped.append(f"{what}: {failure}")
            self.say(f"FAILED: {failure}")

    def target(self, what, wanted, measured, met):
        self.targets.append(Target(what, wanted, measured, met))

    # --- one series ---------------------------------------------------------------------------------------------

    def run_once(self, kind, series):
        contender = kind(self.work / "contender")
        contender.prepare()
        save = restore = measure.Cost()
        for step, folder in series.sets:
            measure.warm(folder)
            save += contender.save(folder, step)
        stored, allocated = contender.stored_bytes()
        identical = True
        for step, folder in series.sets:
            target = measure.fresh(self.work / "restored")
            measure.held_memory.take()
            (measure.warm if contender.cached else measure.cool)(contender.store)
            restore += contender.restore(step, target)
            identical = identical and measure.same_trees(folder, target)
        shutil.rmtree(self.work / "restored")
        shutil.rmtree(contender.work)
        return Result(sum(series.set_bytes()), stored, allocated, save, restore, identical)

    def compare(self, series, kinds):
        """Measures `kinds` on `series` and returns their results by name."""
        total = sum(series.set_bytes())
        runs = {}
        for turn in range(self.options.runs):
            for kind in filter(self.available, filter(self.wanted_tool, kinds)):
                if turn > 0 and kind.slow and total > GIGABYTE:
                    continue
                self.say(f"{series.name}: {kind.name}, run {turn + 1} of {self.options.runs}")
                try:
                    runs.setdefault(kind.name, []).append(self.run_once(kind, series))
                except measure.CommandFailed as failure:
                    self.skipped.append(f"{series.name}, {kind.name}: {failure}")
                    self.say(f"FAILED: {failure}")
        results = {}
        for name, found in runs.items():
            results[name] = dataclasses.replace(
                found[0],
                stored_bytes=int(statistics.median(result.stored_bytes for result in found)),
                allocated_bytes=int(statistics.median(result.allocated_bytes for result in found)),
                save=measure.median([result.save for result in found]),
                restore=measure.median([result.restore for result in found]),
                identical=all(result.identical for result in found))
        plural = "s" if len(series.sets) > 1 else ""
        self.tables.append((f"{series.name}: {len(series.sets)} set{plural}, {report.megabytes(total)} MB", results))
        print(report.series_section(*self.tables[-1]), end="\n\n", flush=True)
        for name, result in results.items():
            if not result.identical:
                self.target(f"{series.name}: {name} restores what was saved", "identical", "different", False)
        return results

    # --- what is to be reached ----------------------------------------------------------------------------------

    def real_series(self, series):
        results = self.compare(series, contenders.ON_REAL_DATA)
        ours = results.get(contenders.VarveBalanced.name)
        for peer in (contenders.Restic, contenders.Borg):
            theirs = results.get(peer.name)
            if not ours or not theirs:
                continue
            self.target(f"{series.name}: smaller than {peer.name}", f"< {report.megabytes(theirs.stored_bytes)} MB",
                        f"{report.megabytes(ours.stored_bytes)} MB", ours.stored_bytes < theirs.stored_bytes)
            self.target(f"{series.name}: less CPU than {peer.name}", f"< {theirs.save.cpu_seconds:.2f} s",
                        f"{ours.save.cpu_seconds:.2f} s", ours.save.cpu_seconds < theirs.save.cpu_seconds)

    def restore_target(self, series, result, wanted):
        self.target(f"{series}: restore", f">= {wanted / 1e6:.0f} MB/s", f"{result.restore_speed() / 1e6:.0f} MB/s",
                    result.restore_speed() >= wanted)

    def all_real(self, series):
        results = self.compare(series, contenders.ON_REAL_DATA)
        ours = results.get(contenders.VarveBalanced.name)
        if ours:
            self.restore_target(f"{series.name}, balanced", ours, 0.8e9)

    def synthetic_series(self, series):
        results = self.compare(series, contenders.ON_SYNTHETIC_DATA)
        ours = results.get(contenders.VarveStore.name)
        borg = results.get(contenders.BorgFixed.name)
        if ours:
            share_max = 2.45e9 / (5 * 8 * 256**3 * 8)
            self.target(f"{series.name}: stored with codec store", f"<= {report.percent(share_max)} of the sets",
                        report.percent(ours.stored_bytes / ours.set_bytes),
                        ours.stored_bytes <= share_max * ours.set_bytes)
            self.restore_target(f"{series.name}, codec store, from the disk", ours, 1.5e9)
        cached = results.get(contenders.VarveStoreCached.name)
        if cached:
            self.restore_target(f"{series.name}, codec store, from the page cache", cached, 1.5e9)
        if ours and borg:
            for what, theirs, mine in (("CPU", borg.save.cpu_seconds, ours.save.cpu_seconds),
                                       ("wall time", borg.save.wall_seconds, ours.save.wall_seconds)):
                self.target(f"{series.name}: {what} of saving, of borg's (fixed 8 KiB)", "<= 33.3 %",
                            report.percent(mine / theirs), mine * 3 <= theirs)
        balanced = results.get(contenders.VarveBalanced.name)
        if balanced:
            self.restore_target(f"{series.name}, balanced", balanced, 0.8e9)

    def against_gzip(self, series):
        """Varve on the .cpu files of an Enzo set alone, against gzip -6 of the same files concatenated."""
        for step, folder in series.sets:
            wanted = report.enzo_gains(series.name, folder.name)
            files = sorted(folder.glob("*.cpu*"))
            if not wanted or not files:
                continue
            only = measure.fresh(self.work / "only_cpu_files" / folder.name)
            joined = self.work / "joined"
            with open(joined, "wb") as out:
                for file in files:
                    shutil.copyfile(file, only / file.name)
                    out.write(file.read_bytes())
            gzip_bytes, gzip_cost = self.gzip_alone(joined)
            for kind, gain, speed in ((contenders.VarveBest, wanted[0], 2), (contenders.VarveBalanced, wanted[1], 8)):
                if self.available(kind):
                    self.gzip_targets(kind, step, only, (gzip_bytes, gzip_cost), (gain, speed), series.name)

    def gzip_alone(self, file):
        packed = self.work / "joined.gz"
        costs = [measure.run(["bash", "-c", 'gzip -6 -c "$0" > "$1"', str(file), str(packed)])
                 for _ in range(self.options.runs)]
        return packed.stat().st_size, measure.median(costs)

    def gzip_targets(self, kind, step, folder, gzip, wanted, series_name):
        (gzip_bytes, gzip_cost), (gain, speed) = gzip, wanted
        costs, stored = [], 0
        for _ in range(self.options.runs):
            contender = kind(self.work / "contender")
            contender.prepare()
            measure.warm(folder)
            costs.append(contender.save(folder, step))
            stored = contender.stored_bytes()[0]
        cost, where = measure.median(costs), f"{series_name}/{folder.name}, {kind.name}"
        self.target(f"{where}: ratio over gzip -6", f">= +{gain:.0%}", f"{gzip_bytes / stored - 1:+.1%}",
                    gzip_bytes >= (1 + gain) * stored)
        self.target(f"{where}: speed per core over gzip -6", f">= {speed} times",
                    f"{gzip_cost.cpu_seconds / cost.cpu_seconds:.1f} times",
                    gzip_cost.cpu_seconds >= speed * cost.cpu_seconds)

    def known_set(self, series):
        """A set that the store holds already is saved once more."""
        if not self.available(contenders.VarveStore):
            return
        step, folder = series.sets[-1]
        contender = contenders.VarveStore(self.work / "contender")
        contender.prepare()
        contender.save(folder, step)
        costs, grown = [], 0
        for again in range(self.options.runs):
            before = contender.stored_bytes()[0]
            measure.warm(folder)
            costs.append(contender.save(folder, 1000000 + again))
            grown = contender.stored_bytes()[0] - before
        size = measure.tree_bytes(folder)[0]
        speed = size / measure.median(costs).wall_seconds
        self.target("a set that is known: save", ">= 1500 MB/s", f"{speed / 1e6:.0f} MB/s", speed >= 1.5e9)
        self.target("a set that is known: stored anew", "< 1 % of its size", report.percent(grown / size),
                    grown < 0.01 * size)

    def memory_bound(self, series):
        """All sets of a series as one: ten times the bound."""
        kind = contenders.VarveBounded
        if sum(series.set_bytes()) < 10 * kind.bound_bytes:
            self.skipped.append("the bound on memory: the data are too small at this scale")
            return
        if not self.available(kind):
            return
        contender = kind(self.work / "contender")
        contender.prepare()
        peak = contender.save(data.one_set_of(series, self.work), 1).peak_bytes
        self.target("--memory 512M, a set ten times as large: peak memory", "<= 512 MiB", f"{peak / 2**20:.0f} MiB",
                    peak <= kind.bound_bytes)

    def many_sets(self):
        """The time of a save does not grow with the number of sets in the store."""
        if not self.available(contenders.VarveBalanced):
            return
        count, edge = (30, 32) if self.options.quick else (100, 64)
        made = data.make_synthetic(self.options.make_series, self.work, "many_sets", 1, count, edge)
        contender = contenders.VarveBalanced(self.work / "contender")
        contender.prepare()
        seconds = []
        for step, folder in made.sets:
            measure.warm(folder)
            seconds.append(contender.save(folder, step).wall_seconds)
        fifth = count // 5
        early, late = (statistics.median(part) for part in (seconds[fifth // 2:fifth // 2 + fifth], seconds[-fifth:]))
        self.target(f"{count} sets in a store: time of the last fifth's saves, of the first's", "<= 115 %",
                    report.percent(late / early), late <= 1.15 * early)
        shutil.rmtree(self.work / "many_sets")

    # --- all of it ----------------------------------------------------------------------------------------------

    def wanted(self, name):
        return not self.options.only or any(part in name for part in self.options.only)

    def wanted_tool(self, kind):
        return not self.options.tool or any(part in kind.name for part in self.options.tool)

    def run_real(self):
        found = data.find_real(self.options.data, self.work / "real")
        if self.wanted("all_real"):
            self.all_real(data.all_in_one(found, self.work))
        for series in found:
            if self.wanted(series.name):
                self.real_series(series)
                self.attempt(f"{series.name} against gzip", self.against_gzip, series)
        shutil.rmtree(self.work / "real", ignore_errors=True)

    def run_synthetic(self):
        edge = self.options.bench_scale
        for name, run_blocks in (("synthetic_scattered", 1), ("synthetic_clustered", 128)):
            if not self.wanted(name):
                continue
            needed = 15 * 8 * edge**3 * 8  # the series, a store, and a restored set
            if shutil.disk_usage(self.work).free < needed:
                self.skipped.append(f"{name}: needs {needed / GIGABYTE:.0f} GB free in {self.work}")
                continue
            made = data.make_synthetic(self.options.make_series, self.work, name, run_blocks, 5, edge)
            self.synthetic_series(made)
            if run_blocks == 1:
                self.attempt("a set that is known", self.known_set, made)
                self.attempt("the bound on memory", self.memory_bound, made)
            shutil.rmtree(self.work / name)
        if self.wanted("many_sets"):
            self.attempt("many sets", self.many_sets)


def parse_options():
    root = pathlib.Path(__file__).resolve().parent.parent
    shared = os.environ.get("VARVE_TEST_DATA") or root.parent / "shared" / "data"
    default_data = shared if pathlib.Path(shared).is_dir() else root / "examples" / "sample"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", default=str(root / "build/varve"), help="the program that is measured")
    parser.add_argument("--make-series", default=str(root / "build/bench/make_series"))
    parser.add_argument("--data", type=pathlib.Path, default=default_data,
                        help="folder of real series (default: VARVE_TEST_DATA, ../shared/data, or the sample)")
    parser.add_argument("--work", default=None, help="where to work, on the file system to be measured")
    parser.add_argument("--runs", type=int, default=None, help="runs that medians are taken of (3; 1 with --quick)")
    parser.add_argument("--bench-scale", type=int, default=None, metavar="EDGE",
                        help="edge of the synthetic fields, a power of two (256: 1.07 GB a set; 64 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small data, one run")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="only series whose name contains this (repeat it for more)")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME",
                        help="only tools whose name contains this (repeat it for more)")
    parser.add_argument("--write", type=pathlib.Path, default=None, help="put the tables into this Markdown file")
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 3)
    options.bench_scale = options.bench_scale or (64 if options.quick else 256)
    options.varve = str(pathlib.Path(options.varve).resolve())
    options.make_series = str(pathlib.Path(options.make_series).resolve())
    return options


def main():
    options = parse_options()
    contenders.Varve.program = options.varve
    with tempfile.TemporaryDirectory(prefix="varve-bench-", dir=options.work) as folder:
        bench = Bench(options, pathlib.Path(folder))
        machine = report.machine(folder)
        if pathlib.Path(options.make_series).is_file():
            bench.run_synthetic()
        else:
            bench.skipped.append(f"synthetic series: {options.make_series} not built")
        bench.run_real()
    print(report.closing_sections(bench))
    if options.write:
        report.write_section(options.write, report.document(bench, machine, sys.argv))
    return 0 if bench.targets and all(target.met for target in bench.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
