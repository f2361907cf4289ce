#!/usr/bin/env python3
"""Measures what checkpoints cost a running program on this machine: the flow solver of examples/lbm, and a stencil
beside plain files (plain.py).

    bench/runtime.py --lbm .../examples/lbm --memory-copy .../bench/memory_copy --stencil .../bench/stencil [--quick]

Each figure stands beside its limit, measured in the same run: a plain copy of the same bytes, the processor time behind
the program, the ratio that the data allow. Numbers are medians of --runs runs, and the modes take turns in an order that
alternates, so that a slow minute of the machine does not fall on one of them. Stores and memory lie in temporary folders.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import measure
import plain
import report

CHECKPOINTS = 4
MEGABYTE = 1e6
COPY_FACTOR_MAX = 1.2      # of the time blocked to that of a plain copy
LENT_SECONDS_MAX = 1e-3
OVERHEAD_SLACK = 0.02      # beyond what the processor time of stage 2 explains
PAPER_SAVING = 0.87        # of the time to persistent, against plain files (mcrEngine, SC'12)
PAPER_OVERHEAD = (0.0035, 0.025)  # of four checkpoints (Shahzad et al., 2013)
SCALING_FACTOR_MAX = 1.25  # of the time blocked per byte of the machine, to that of one rank


@dataclasses.dataclass(frozen=True)
class Kind:
    """One way to run the solver."""
    name: str
    mode: str
    settings: dict = dataclasses.field(default_factory=dict)
    arguments: tuple = ()


class Runner:
    def __init__(self, options, work):
        self.options = options
        self.work = work

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def solve(self, kind, ranks, cells, steps, every):
        """The figures of one run, in a store and a memory folder of its own."""
        store = measure.fresh(self.work / "run")
        memory = pathlib.Path(tempfile.mkdtemp(prefix="varve-bench-", dir=self.options.memory))
        environment = {**measure.LAUNCHER_ENVIRONMENT, "VARVE_STORE": str(store / "store"), "VARVE_JOB": "lbm",
                       "VARVE_SHARED_MEMORY": str(memory), "VARVE_STOP_ON_SIGNALS": "false", **kind.settings}
        figures = self.work / "figures.json"
        command = ["mpirun", "-n", str(ranks), self.options.lbm, "--cells", ",".join(map(str, cells)),
                   "--steps", str(steps), "--every", str(every), "--mode", kind.mode, "--reynolds", "400",
                   "--files", str(store / "files"), "--json", str(figures), *kind.arguments]
        try:
            measure.run(command, cwd=self.work, environment=environment)
            return json.loads(figures.read_text())
        finally:
            shutil.rmtree(memory, ignore_errors=True)
            shutil.rmtree(store, ignore_errors=True)

    def take_turns(self, kinds, measurement):
        """`measurement(kind)` for each of them, run by run, every other run backwards: the results by name."""
        found = {kind.name: [] for kind in kinds}
        for turn in range(self.options.runs):
            for kind in (kinds if turn % 2 == 0 else list(reversed(kinds))):
                self.say(f"{kind.name}, run {turn + 1} of {self.options.runs}")
                found[kind.name].append(measurement(kind))
        return found

    def copy_seconds(self, size, threads, repeats=5):
        said = measure.output([self.options.memory_copy, str(size), str(threads), str(repeats)])
        return statistics.median(map(float, said.split()))


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"


def signed_percent(share):
    return f"{share * 100:+.1f} %"


def background(figures):
    """Processor seconds of all threads behind the program: in user code, in the system."""
    return figures["background_user_seconds"], figures["background_system_seconds"]


def median_of(runs, value):
    return statistics.median(value(figures) for figures in runs)


def blocked_each(runs):
    """Time blocked for one checkpoint: the median of all, and the worst."""
    every = [seconds for figures in runs for seconds in figures["blocked_seconds"]]
    return statistics.median(every), max(every)


class Report:
    def __init__(self):
        self.targets = []

    def target(self, what, wanted, measured, met):
        self.targets.append((what, wanted, measured, "met" if met else "NOT MET"))

    def targets_table(self):
        return report.table(("to reach", "wanted", "measured", ""), self.targets)


# --- four checkpoints, beside none -------------------------------------------------------------------------------------

OVERHEAD_KINDS = [
    Kind("none", "none"),
    Kind("asynchronous copy", "async"),
    Kind("asynchronous, lent grids", "lent"),
    Kind("asynchronous copy, codec store", "async", {"VARVE_CODEC": "store"}),
    Kind("synchronous", "sync"),
]


def overhead(runner, ranks):
    options = runner.options
    copies = []

    def run(kind):
        figures = runner.solve(kind, ranks, options.cells, options.steps, options.every)
        if kind.name == "asynchronous copy":
            copies.append(runner.copy_seconds(figures["bytes_per_rank"] * ranks, min(ranks, os.cpu_count())))
        return figures

    found = runner.take_turns(OVERHEAD_KINDS, run)
    result = Report()
    cores = os.cpu_count()
    base = median_of(found["none"], lambda figures: figures["total_seconds"])
    size = found["none"][0]["bytes_per_rank"] * ranks
    copy = statistics.median(copies)
    rows = []
    for kind in OVERHEAD_KINDS:
        runs = found[kind.name]
        seconds = median_of(runs, lambda figures: figures["total_seconds"])
        if kind.mode == "none":
            rows.append((kind.name, "", "", f"{seconds:.2f}", "", "", "", ""))
            continue
        user = median_of(runs, lambda figures: background(figures)[0])
        system = median_of(runs, lambda figures: background(figures)[1])
        each, worst = blocked_each(runs)
        # Turn by turn, since the machine has slow minutes, too.
        share = statistics.median(figures["total_seconds"] / none["total_seconds"]
                                  for figures, none in zip(runs, found["none"])) - 1
        rows.append((kind.name, milliseconds(each), milliseconds(worst), f"{seconds:.2f}", signed_percent(share),
                     f"{user:.2f}", f"{system:.2f}", signed_percent((user + system) / cores / base)))
        judge_overhead(result, kind, ranks, share, (user + system) / cores / base, each, copy)
    table = report.table(("mode", "blocked", "worst", "run s", "overhead", "behind: user s", "system s", "over cores"),
                         rows)
    text = [f"### {CHECKPOINTS} checkpoints on {ranks} ranks",
            f"{'×'.join(map(str, options.cells))} cells, {options.steps} steps, a checkpoint every {options.every}, "
            f"{size / MEGABYTE:.0f} MB each; a plain copy of as many bytes by {min(ranks, cores)} threads takes "
            f"{milliseconds(copy)}; {cores} cores. *Behind* is the processor time of all threads but the program's, "
            "*over cores* the same divided by the cores, as a share of the run without checkpoints. *Overhead* is the "
            "median of what each run took more than the one without checkpoints in the same turn.", table,
            parts_of_stage_2(found), result.targets_table()]
    return "\n\n".join(text), result


def judge_overhead(result, kind, ranks, share, explained, each, copy):
    name = f"{ranks} ranks, {kind.name}"
    if kind.mode == "async" and not kind.settings:
        result.target(f"{name}: time blocked, to a plain copy", f"<= {COPY_FACTOR_MAX}", f"{each / copy:.2f}",
                      each <= COPY_FACTOR_MAX * copy)
    if kind.mode == "lent":
        result.target(f"{name}: time blocked", f"<= {milliseconds(LENT_SECONDS_MAX)}", milliseconds(each),
                      each <= LENT_SECONDS_MAX)
    if kind.mode in ("async", "lent"):
        limit = explained + OVERHEAD_SLACK
        result.target(f"{name}: overhead", f"<= {limit * 100:.1f} %", signed_percent(share), share <= limit)
    if kind.settings.get("VARVE_CODEC") == "store":
        result.target(f"{name}: overhead, the paper's mark", f"<= {PAPER_OVERHEAD[1] * 100:.1f} %",
                      signed_percent(share), share <= PAPER_OVERHEAD[1])


def parts_of_stage_2(found):
    """What the processor time behind the program is spent on, as far as two kinds tell it apart."""
    plain, compressed = found["asynchronous copy, codec store"], found["asynchronous copy"]
    user = median_of(plain, lambda figures: background(figures)[0])
    system = median_of(plain, lambda figures: background(figures)[1])
    more = median_of(compressed, lambda figures: background(figures)[0]) - user
    return (f"Of the processor time behind the program, hashing and copying take about {user:.2f} s (user time with codec "
            f"`store`), writing as many bytes {system:.2f} s (its system time), and compressing {more:.2f} s (the user time "
            "that an effort adds).")


# --- a slow level ------------------------------------------------------------------------------------------------------

def slow_level(runner, ranks, rate):
    options = runner.options
    kinds = [
        Kind("plain files", "files", {}, ("--files-rate", str(rate / ranks))),
        Kind("asynchronous, codec store", "async", {"VARVE_WRITE_BYTES_PER_SECOND": str(int(rate)),
                                                    "VARVE_CODEC": "store"}),
        Kind("asynchronous, balanced", "async", {"VARVE_WRITE_BYTES_PER_SECOND": str(int(rate))}),
        Kind("the same, low_priority off", "async", {"VARVE_WRITE_BYTES_PER_SECOND": str(int(rate)),
                                                     "VARVE_LOW_PRIORITY": "false"}),
    ]
    cells, every = options.cells, options.slow_every
    found = runner.take_turns(kinds, lambda kind: runner.solve(kind, ranks, cells, 2 * every - 1, every))
    size = found["plain files"][0]["bytes_per_rank"] * ranks
    seconds = {"plain files": blocked_each(found["plain files"])[0]}
    ratio = {}
    for kind in kinds[1:]:
        sessions = [figures["session"] for figures in found[kind.name]]
        seconds[kind.name] = median_of(sessions, lambda each: each["persistent_seconds"] / each["persistent_count"])
        ratio[kind.name] = median_of(sessions, lambda each: each["drained_bytes"] / each["stored_bytes"])
    base = seconds["plain files"]
    rows = [(name, f"{value:.2f}", f"{ratio[name]:.2f}" if name in ratio else "",
             signed_percent(value / base - 1) if name in ratio else "") for name, value in seconds.items()]
    result = Report()
    allowed = 1 - 1 / ratio["asynchronous, balanced"]
    wanted = min(PAPER_SAVING, allowed)
    for name in ("asynchronous, balanced", "the same, low_priority off"):
        saved = 1 - seconds[name] / base
        result.target(f"{rate / MEGABYTE:.0f} MB/s, {name}: time to persistent, against plain files",
                      f"<= {-wanted * 100:.1f} %", signed_percent(-saved), saved >= wanted)
    text = [f"### A level of {rate / MEGABYTE:.0f} MB/s, {ranks} ranks",
            f"{'×'.join(map(str, cells))} cells, {size / MEGABYTE:.0f} MB, one checkpoint, beside which the solver goes on. The bandwidth is "
            f"that of all ranks together. The data's ratio allows {-allowed * 100:.1f} %; the paper has {-PAPER_SAVING * 100:.0f} %. "
            "(Its −62 % are for restarts, which plain files of the solver do not have.)",
            report.table(("mode", "s to persistent", "ratio", "against plain files"), rows), result.targets_table()]
    return "\n\n".join(text), result


# --- weak scaling ------------------------------------------------------------------------------------------------------

def weak_scaling(runner):
    options = runner.options
    edge = options.scaling_edge
    kinds = [Kind(str(ranks), "async", {"VARVE_CODEC": "store"}) for ranks in (1, 2, 4, 8)]

    def run(kind):
        ranks = int(kind.name)
        figures = runner.solve(kind, ranks, (edge * ranks, edge, edge), 2 * CHECKPOINTS * 5, 2 * 5)
        return {**figures, "copy": runner.copy_seconds(figures["bytes_per_rank"] * ranks, min(ranks, os.cpu_count()))}

    found = runner.take_turns(kinds, run)
    per_byte, rows = {}, []
    for kind in kinds:
        ranks, runs = int(kind.name), found[kind.name]
        mine = runs[0]["bytes_per_rank"]
        each = blocked_each(runs)[0]
        copy = median_of(runs, lambda figures: figures["copy"])
        per_byte[ranks] = each / (mine * ranks)
        rows.append((ranks, f"{mine / MEGABYTE:.1f}", milliseconds(each), f"{each / mine * 1e9:.3f}",
                     f"{per_byte[ranks] * 1e9:.3f}", f"{copy / (mine * ranks) * 1e9:.3f}"))
    result = Report()
    for ranks in (2, 4, 8):
        factor = per_byte[ranks] / per_byte[1]
        result.target(f"weak scaling: time blocked per byte of the machine, {ranks} ranks to 1",
                      f"<= {SCALING_FACTOR_MAX}", f"{factor:.2f}", factor <= SCALING_FACTOR_MAX)
    text = ["### Weak scaling",
            f"{edge}³ cells for each rank; more ranks than cores ({os.cpu_count()}) share them, so that the time per byte "
            "of one rank must grow there; that per byte of all should stay.",
            report.table(("ranks", "MB a rank", "blocked", "ns per byte of a rank", "ns per byte of all",
                          "plain copy, ns per byte"), rows), result.targets_table()]
    return "\n\n".join(text), result


def beside_plain_files(runner):
    result = Report()
    return plain.beside_plain_files(runner, result), result


def sections(options):
    """(name, measurement) of what was asked for."""
    every = [("plain", beside_plain_files), ("overhead2", lambda runner: overhead(runner, 2)),
             ("overhead4", lambda runner: overhead(runner, 4)),
             ("slow100", lambda runner: slow_level(runner, 2, 100 * MEGABYTE)),
             ("slow25", lambda runner: slow_level(runner, 2, 25 * MEGABYTE)), ("scaling", weak_scaling)]
    return [(name, run) for name, run in every if not options.only or name in options.only]


def parse_options():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lbm", default=str(root / "build/examples/lbm"))
    parser.add_argument("--memory-copy", default=str(root / "build/bench/memory_copy"))
    parser.add_argument("--stencil", default=str(root / "build/bench/stencil"))
    parser.add_argument("--memory", default="/dev/shm", help="a memory file system, for snapshots")
    parser.add_argument("--work", default=None, help="where to work, on the file system to be measured")
    parser.add_argument("--runs", type=int, default=None, help="runs that medians are taken of (5; 1 with --quick)")
    parser.add_argument("--edge", type=int, default=None, help="of the domain of the overhead (112: 214 MB; 48)")
    parser.add_argument("--every", type=int, default=None, help="steps between checkpoints (120; 15)")
    parser.add_argument("--only", action="append", default=[],
                        choices=["plain", "overhead2", "overhead4", "slow100", "slow25", "scaling"])
    parser.add_argument("--quick", action="store_true", help="small data, one run")
    parser.add_argument("--write", type=pathlib.Path, default=None, help="put the tables into this Markdown file")
    options = parser.parse_args()
    quick = options.quick
    options.runs = options.runs or (1 if quick else 5)
    options.cells = (options.edge or (48 if quick else 112),) * 3
    options.every = options.every or (15 if quick else 120)
    # The last checkpoint has as long as the others before the end, at which none is due.
    options.steps = (CHECKPOINTS + 1) * options.every - 1
    options.slow_every = 20 if quick else 100
    options.scaling_edge = 32 if quick else 64
    options.plain_mib = 16 if quick else 256
    options.plain_runs = min(options.runs, 3)
    options.stencil = str(pathlib.Path(options.stencil).resolve())
    options.lbm = str(pathlib.Path(options.lbm).resolve())
    options.memory_copy = str(pathlib.Path(options.memory_copy).resolve())
    return options


def main():
    options = parse_options()
    met = True
    with tempfile.TemporaryDirectory(prefix="varve-bench-", dir=options.work) as folder:
        runner = Runner(options, pathlib.Path(folder))
        conditions = "\n".join(f"- {line}" for line in [*report.machine(folder)[:1],
                                                        f"{options.runs} runs (medians); MB = 10^6 bytes"])
        for name, run in sections(options):
            text, result = run(runner)
            text = f"{text}\n\n{conditions}"
            print(text, end="\n\n", flush=True)
            if options.write:
                report.write_marked(options.write, f"runtime.py {name}", text)
            met = met and all(row[-1] == "met" for row in result.targets)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
