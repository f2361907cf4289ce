#!/usr/bin/env python3
"""Measures what a watcher costs the program beside it.

    bench/watch.py --varve build/varve --lbm build/examples/lbm [--quick] [--write FILE]

The program is the flow solver of examples/lbm, which writes one plain file a rank and checkpoint, and keeps as many
processors busy as it has ranks. It runs alone, and with a watcher that saves its files; the two take turns, and numbers
are medians of --runs runs. How long a set took is from the last write to its files until its record is in the store.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import report

MEGABYTE = 1e6


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.files, self.store = work / "files", work / "store"

    def run_program(self, ranks):
        """Seconds from its start to its end."""
        command = [self.options.lbm, "--cells", self.options.cells, "--steps", self.options.steps, "--every",
                   self.options.every, "--mode", "files", "--files", self.files]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
        begin = time.perf_counter()
        done = subprocess.run(list(map(str, ["mpirun", "-n", ranks, *command])), env=environment, capture_output=True,
                              text=True, check=False, cwd=self.work)
        if done.returncode != 0:
            raise measure.CommandFailed(done.stderr[-2000:])
        return time.perf_counter() - begin

    def alone(self, ranks):
        measure.fresh(self.files)
        os.sync()
        return self.run_program(ranks)

    def watched(self, ranks, effort):
        """The program's seconds, the watcher's processor seconds, and how late each set was in the store."""
        measure.fresh(self.files)
        measure.fresh(self.store)
        measure.output([self.options.varve, "init", self.store])
        os.sync()
        environment = {**os.environ, "XDG_STATE_HOME": str(self.work / "state")}
        watcher = subprocess.Popen(
            [self.options.varve, "watch", self.files, "--to", self.store, "--pattern", "rank{rank}-{step}", "--ranks",
             str(ranks), "--quiet", "0.2", "--json", *effort], stdout=subprocess.PIPE, text=True, env=environment)
        time.sleep(0.3)
        seconds = self.run_program(ranks)
        wanted = self.options.steps // self.options.every
        late, stored = [], 0
        for line in watcher.stdout:
            event = json.loads(line)
            if event["event"] != "saved":
                continue
            step = event["set"].split("@")[1]
            record = self.store / "sets" / "files" / f"{step}.set"
            last = max(path.stat().st_mtime for path in self.files.glob(f"rank*-{step}"))
            late.append(record.stat().st_mtime - last)
            stored += event["record"]["new_bytes"]
            if len(late) == wanted:
                break
        watcher.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(watcher.pid, 0)
        watcher.stdout.close()
        raw = sum(path.stat().st_size for path in self.files.iterdir())
        return seconds, usage.ru_utime + usage.ru_stime, statistics.mean(late), raw

    def rows(self):
        for ranks in self.options.ranks:
            alone, watched = [], {}
            for _ in range(self.options.runs):
                alone.append(self.alone(ranks))
                for name, effort in (("balanced", []), ("fast", ["--effort", "fast"]), ("store", ["--codec", "store"])):
                    watched.setdefault(name, []).append(self.watched(ranks, effort))
            base = statistics.median(alone)
            yield (ranks, "no watcher", f"{base:.2f}", "", "", "", "")
            for name, runs in watched.items():
                seconds, busy, late, raw = (statistics.median(run[i] for run in runs) for i in range(4))
                yield (ranks, f"watched, {name}", f"{seconds:.2f}", report.percent(max(seconds / base - 1, 0)), f"{busy:.2f}",
                       f"{busy / (raw / 1e9):.2f}", f"{late:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=pathlib.Path, required=True, help="the program that is measured")
    parser.add_argument("--lbm", type=pathlib.Path, required=True, help="the program beside it")
    parser.add_argument("--work", type=pathlib.Path, help="where to work, on the file system to be measured")
    parser.add_argument("--runs", type=int, default=3, help="runs that medians are taken of (3)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="ranks of the program (1 2)")
    parser.add_argument("--cells", type=int, default=128, help="edge of its domain (128)")
    parser.add_argument("--quick", action="store_true", help="a small domain, one run")
    parser.add_argument("--write", type=pathlib.Path, help="put the table into this Markdown file")
    options = parser.parse_args()
    options.varve, options.lbm = options.varve.resolve(), options.lbm.resolve()
    options.steps, options.every = (60, 20) if options.quick else (200, 50)
    if options.quick:
        options.cells, options.runs = 48, 1
    with tempfile.TemporaryDirectory(prefix="varve-watch-", dir=options.work) as work:
        text = report.table(["ranks", "", "run s", "longer by", "watcher CPU s", "CPU s per GB", "late s"],
                            list(Bench(options, pathlib.Path(work)).rows()))
    print(text)
    if options.write:
        report.write_marked(options.write, "watch.py", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
