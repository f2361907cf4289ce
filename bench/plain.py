"""Checkpoints and restarts beside plain files with fsync, and beside no checkpoints: a section of bench/runtime.py.

The program is bench/stencil.cpp, which computes on all processors. The ways take turns. "cold": the page cache was emptied
of the files before; "memory": the program was killed, and its snapshots are still in shared memory; beside it the time that
a plain copy of the same bytes takes.
"""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import measure
import report

RANKS, STEPS, CHECKPOINTS = 4, 40, 3
FILES, VARVE = "plain files, fsync", "Varve"
BEHIND = "plain files, from a copy by a thread"
KINDS = {FILES: ("files", {}), BEHIND: ("behind", {}), VARVE: ("varve", {}), "Varve, codec store": ("varve", {"VARVE_CODEC": "store"})}
# What is wanted of Varve: against plain files, a plain copy, or in seconds; and of memory.
BLOCKED_SECONDS_MAX = 0.1
DURABLE_FACTOR_MAX, COLD_FACTOR_MAX, WARM_FACTOR_MAX = 1.1, 1.2, 4
COPY_FACTOR_MAX = 2
EXTRA_MIB_MAX = 32
# Of a rank, where only memory is measured: what is the same for any number of bytes shows itself there.
SMALL_MIB = 16


class Program:
    def __init__(self, stencil, mib, work):
        self.stencil = stencil
        self.mib = mib
        self.work = work

    def command(self, mode, kind):
        return ["mpirun", "-n", str(RANKS), self.stencil, mode, kind, str(self.mib), str(STEPS), str(CHECKPOINTS),
                str(self.work)]

    def environment(self, settings):
        return {**os.environ, **measure.LAUNCHER_ENVIRONMENT, "VARVE_STORE": str(self.work / "store"),
                "VARVE_JOB": "stencil", "VARVE_SHARED_MEMORY": str(self.work / "memory"),
                "VARVE_STOP_ON_SIGNALS": "false", **settings}

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
    if kind != "behind":  # it leaves the same files
        program.forget()
        figures["cold"] = program.say("restart", kind, settings)["restart_seconds"]
        figures["warm"] = program.say("restart", kind, settings)["restart_seconds"]
    if kind == "varve":
        program.fresh()
        program.kill_one(settings)
        said = program.say("restart", kind, settings)
        figures["memory"], figures["copy"] = said["restart_seconds"], said["copy_seconds"]
    program.fresh()
    durable = program.say("durable", kind, settings)
    figures["durable"] = durable["blocked_seconds"][0] + durable["wait_seconds"]
    return figures


def medians(turns):
    found = {key: statistics.median(figures[key] for figures in turns)
             for key, value in turns[0].items() if not isinstance(value, list)}
    found["blocked"] = [statistics.median(figures["blocked_seconds"][i] for figures in turns)
                        for i in range(CHECKPOINTS)]
    return found


def row(name, found, none):
    memory = f"{found['memory']:.2f} ({found['copy']:.2f})" if "memory" in found else "–"
    cold, warm = (f"{found[way]:.2f}" if way in found else "–" for way in ("cold", "warm"))
    return (name, ", ".join(f"{seconds:.3f}" for seconds in found["blocked"]),
            f"{found['seconds'] - none['seconds']:.1f}", f"{found['durable']:.2f}", cold, warm, memory, f"{found['processor_seconds'] - none['processor_seconds']:.1f}",
            f"{found['disk_mb']:.0f}", f"{found['peak_mib']:.0f}")


def judge(result, found, none, mib):
    varve, files = found[VARVE], found[FILES]

    def at_most(what, wanted, measured, unit):
        result.target(f"beside plain files: {what}", f"<= {wanted}{unit}", f"{measured:.2f}{unit}", measured <= wanted)

    at_most("time blocked by a checkpoint, at most", BLOCKED_SECONDS_MAX, max(varve["blocked"]), " s")
    at_most("time of the run over none, to theirs", 1,
            (varve["seconds"] - none["seconds"]) / (files["seconds"] - none["seconds"]), "")
    at_most("time until durable, to theirs", DURABLE_FACTOR_MAX, varve["durable"] / files["durable"], "")
    at_most("restart from cold, to theirs", COLD_FACTOR_MAX, varve["cold"] / files["cold"], "")
    at_most("restart from warm, to theirs", WARM_FACTOR_MAX, varve["warm"] / files["warm"], "")
    at_most("restart from memory, to a plain copy", COPY_FACTOR_MAX, varve["memory"] / varve["copy"], "")
    judge_memory(result, mib, files["peak_mib"], varve["peak_mib"])


def judge_memory(result, mib, files_mib, varve_mib):
    extra = varve_mib - files_mib - mib
    result.target(f"beside plain files: largest process, over theirs and a snapshot of {mib} MiB",
                  f"<= {EXTRA_MIB_MAX} MiB", f"{extra:.2f} MiB", extra <= EXTRA_MIB_MAX)


def peak(program, name):
    program.fresh()
    return program.say("run", *KINDS[name])["peak_mib"]


def beside_plain_files(runner, result):
    """The section's text; what is to reach goes to `result`."""
    options = runner.options
    memory = pathlib.Path(tempfile.mkdtemp(prefix="varve-bench-", dir=options.memory))
    work = measure.fresh(runner.work / "plain")
    (work / "memory").symlink_to(memory)
    program = Program(options.stencil, options.plain_mib, work)
    small = Program(options.stencil, SMALL_MIB, work)
    turns, without, peaks = {name: [] for name in KINDS}, [], {FILES: [], VARVE: []}
    try:
        for number in range(options.plain_runs):
            names = list(KINDS) if number % 2 == 0 else list(reversed(KINDS))
            program.fresh()
            without.append(program.say("run", "none", {}))
            for name in names:
                runner.say(f"{name}, turn {number + 1} of {options.plain_runs}")
                turns[name].append(turn(program, *KINDS[name]))
            for name, of_small in peaks.items():
                of_small.append(peak(small, name))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)
    none = medians(without)
    found = {name: medians(of_name) for name, of_name in turns.items()}
    judge(result, found, none, options.plain_mib)
    if options.plain_mib != SMALL_MIB:
        judge_memory(result, SMALL_MIB, statistics.median(peaks[FILES]), statistics.median(peaks[VARVE]))
    table = report.table(("medians", "blocked s, each checkpoint", "run over none, s", "durable s", "restart s, cold",
                          "warm", "memory (a copy)", "processor s over none", "disk MB", "largest process MiB"),
                         [row(name, of_name, none) for name, of_name in found.items()])
    return (f"{RANKS} ranks of {options.plain_mib} MiB, {options.plain_runs} turns; without checkpoints "
            f"{none['seconds']:.1f} s, {none['processor_seconds']:.1f} s of processor\n\n{table}\n\n"
            f"{result.targets_table()}")
