#!/usr/bin/env python3
"""Measures Varve beside plain files with fsync, and beside no checkpoints, in one program that computes on all processors.

    bench/plain.py --stencil .../bench/stencil [--ranks 4] [--mib 256] [--runs 3] [--write FILE]

A checkpoint comes every ten steps. The ways take turns. "cold": the page cache was emptied of the files before; "memory":
the program was killed, and its snapshots are still in shared memory.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import report
from runtime import LAUNCHER_ENVIRONMENT

STEPS, CHECKPOINTS = 40, 3
KINDS = {"plain files, fsync": ("files", {}), "Varve": ("varve", {}),
         "Varve, codec store": ("varve", {"VARVE_CODEC": "store"})}


class Program:
    def __init__(self, options, work):
        self.options = options
        self.work = work

    def command(self, mode, kind):
        return ["mpirun", "-n", str(self.options.ranks), self.options.stencil, mode, kind, str(self.options.mib),
                str(STEPS), str(CHECKPOINTS), str(self.work)]

    def environment(self, settings):
        return {**os.environ, **LAUNCHER_ENVIRONMENT, "VARVE_STORE": str(self.work / "store"), "VARVE_JOB": "stencil",
                "VARVE_SHARED_MEMORY": str(self.work / "memory"), "VARVE_STOP_ON_SIGNALS": "false", **settings}

    def fresh(self):
        memory = self.work / "memory"
        for entry in list(self.work.iterdir()):
            if entry != memory:
                shutil.rmtree(entry)
        for entry in memory.iterdir():
            entry.unlink()
        for name in ("sums", "files"):
            (self.work / name).mkdir()

    def say(self, mode, kind, settings):
        os.sync()
        measure.held_memory.take()
        said = subprocess.run(self.command(mode, kind), env=self.environment(settings), cwd=self.work, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return json.loads(said)

    def forget(self):
        """Empties the page cache of what was saved."""
        os.sync()
        for folder in ("store", "files"):
            for path in (self.work / folder).rglob("*"):
                if path.is_file():
                    descriptor = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)

    def disk_bytes(self):
        return sum(path.stat().st_blocks * 512 for folder in ("store", "files")
                   for path in (self.work / folder).rglob("*") if path.is_file())

    def kill_one(self, settings):
        """A run that is killed after its first checkpoint."""
        process = subprocess.Popen(self.command("run", "varve"), env=self.environment(settings), cwd=self.work,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while process.poll() is None and not any((self.work / "store").glob("sets/*/*.set")):
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        subprocess.run(["pkill", "-KILL", "-f", f"stencil run varve .* {self.work}"], check=False)
        time.sleep(0.5)


def turn(program, kind, settings):
    """One measurement of all that one way costs."""
    program.fresh()
    figures = program.say("run", kind, settings)
    figures["disk_mb"] = program.disk_bytes() / 1e6
    program.forget()
    figures["cold"] = program.say("restart", kind, settings)["restart_seconds"]
    figures["warm"] = program.say("restart", kind, settings)["restart_seconds"]
    if kind == "varve":
        program.fresh()
        program.kill_one(settings)
        figures["memory"] = program.say("restart", kind, settings)["restart_seconds"]
    program.fresh()
    durable = program.say("durable", kind, settings)
    figures["durable"] = durable["blocked_seconds"][0] + durable["wait_seconds"]
    return figures


def row(name, turns, none):
    def median(value):
        return statistics.median(value(figures) for figures in turns)
    blocked = [statistics.median(figures["blocked_seconds"][i] for figures in turns) for i in range(CHECKPOINTS)]
    memory = f"{median(lambda f: f['memory']):.2f}" if "memory" in turns[0] else "–"
    return (name, ", ".join(f"{seconds:.3f}" for seconds in blocked),
            f"{median(lambda f: f['seconds']) - none['seconds']:.1f}", f"{median(lambda f: f['durable']):.2f}",
            f"{median(lambda f: f['cold']):.2f}", f"{median(lambda f: f['warm']):.2f}", memory,
            f"{median(lambda f: f['processor_seconds']) - none['processor_seconds']:.1f}",
            f"{median(lambda f: f['disk_mb']):.0f}", f"{median(lambda f: f['peak_mib']):.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stencil", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mib", type=int, default=256, help="that a rank protects")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", default="/var/tmp", help="on the disk that is measured")
    parser.add_argument("--write", help="a file for the table")
    options = parser.parse_args()
    memory = pathlib.Path(tempfile.mkdtemp(prefix="varve-bench-", dir="/dev/shm"))
    work = pathlib.Path(tempfile.mkdtemp(prefix="varve-bench-", dir=options.folder))
    (work / "memory").symlink_to(memory)
    found = {name: [] for name in KINDS}
    none = []
    try:
        program = Program(options, work)
        for number in range(options.runs):
            names = list(KINDS) if number % 2 == 0 else list(reversed(KINDS))
            program.fresh()
            none.append(program.say("run", "none", {}))
            for name in names:
                print(f"{name}, turn {number + 1} of {options.runs}", file=sys.stderr, flush=True)
                found[name].append(turn(program, *KINDS[name]))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)
    without = {key: statistics.median(figures[key] for figures in none) for key in ("seconds", "processor_seconds")}
    rows = [row(name, turns, without) for name, turns in found.items()]
    table = report.table(("medians", "blocked s, each checkpoint", "run over none, s", "durable s", "restart s, cold",
                          "warm", "memory", "processor s over none", "disk MB", "largest process MiB"), rows)
    text = (f"{options.ranks} ranks of {options.mib} MiB on {os.cpu_count()} processors; without checkpoints "
            f"{without['seconds']:.1f} s, {without['processor_seconds']:.1f} s of processor\n\n{table}")
    print(text)
    if options.write:
        pathlib.Path(options.write).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
