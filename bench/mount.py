#!/usr/bin/env python3
"""Measures a mounted store: writes up to close, reads of committed sets, and the time until a set is committed.

    bench/mount.py --varve build/varve --make-series build/bench/make_series [--quick] [--write FILE]

All places lie on one file system: the plain disk, libfuse's own passthrough example over it (built from its source, if
that is installed), and a mount with its spool there. They take turns; numbers are medians of --runs runs. What is
written is zeros in blocks of a megabyte, up to close, without fsync, the best of four times in each run. Reads begin with nothing in the mount's memory,
and with the store in the page cache; `varve restore` writes what it reads, once with and once without waiting for the
disk. The codec of sets is that of --effort balanced, unless it is named.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import report

MEGABYTE = 1e6
BLOCK = 1 << 20
PASSTHROUGH_SOURCE = pathlib.Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")
PROCESSES = (1, 4)
REPEATS = 4  # of a write, of which the best counts
WRITE_SHARE_MIN = 0.9  # of passthrough
READ_SHARE_MIN = 0.7   # of varve restore


def in_parallel(commands):
    """Runs commands at the same time; returns the seconds until the last has ended."""
    os.sync()
    started = time.perf_counter()
    processes = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for command in commands]
    ended = [process.wait() for process in processes]
    seconds = time.perf_counter() - started
    if any(ended):
        raise measure.CommandFailed(f"{commands[0]} ended with {ended}")
    return seconds


def wait_until(condition):
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            raise measure.CommandFailed("nothing was mounted")
        time.sleep(0.01)


class Passthrough:
    """libfuse's passthrough_ll over a folder, for the time of a `with`."""

    def __init__(self, program, work, source):
        self.program, self.source = program, source
        self.folder = work / "passthrough"

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        # clone_fd and caching as the mount has them.
        self.process = subprocess.Popen([self.program, "-f", "-o", f"source={self.source},cache=always,clone_fd", self.folder])
        wait_until(lambda: os.path.ismount(self.folder))
        return self.folder

    def __exit__(self, *_):
        subprocess.run(["umount" if os.geteuid() == 0 else "fusermount3", *([] if os.geteuid() == 0 else ["-u"]), self.folder],
                       check=True)
        self.process.wait(timeout=30)


class Mounted:
    """A new mount of a store, with nothing in its memory."""

    def __init__(self, varve, work, store, *options):
        self.command = [varve, "mount", store, work / "mount", "--foreground", "--spool", work / "spool", "--seal-after", "0",
                        *options]
        self.varve, self.folder = varve, work / "mount"

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        if " is at " not in self.process.stdout.readline():
            raise measure.CommandFailed("varve mount failed")
        return self.folder

    def __exit__(self, *_):
        measure.output([self.varve, "unmount", self.folder])
        self.process.wait(timeout=60)


class Bench:
    def __init__(self, options, work):
        self.options, self.work, self.varve = options, work, options.varve
        self.goals = []
        self.passthrough = self.build_passthrough()

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def goal(self, what, wanted, measured, met):
        self.goals.append([what, wanted, measured, "met" if met else "NOT MET"])

    def build_passthrough(self):
        if not PASSTHROUGH_SOURCE.exists():
            return None
        program = self.work / "passthrough_ll"
        flags = measure.output(["pkg-config", "--cflags", "--libs", "fuse3"]).split()
        measure.output(["cc", "-O2", PASSTHROUGH_SOURCE, "-o", program, *flags])
        return program

    def new_store(self):
        shutil.rmtree(self.work / "spool", ignore_errors=True)
        measure.fresh(self.work / "store").rmdir()
        measure.output([self.varve, "init", self.work / "store"])
        return self.work / "store"

    # Writing

    def write_rate(self, folder, processes):
        total = self.options.mebibytes
        each = total // processes
        commands = [["dd", "if=/dev/zero", f"of={folder}/file{i}", f"bs={BLOCK}", f"count={each}"] for i in range(processes)]
        seconds = []
        for _ in range(REPEATS):
            for command in commands:
                pathlib.Path(command[2].removeprefix("of=")).unlink(missing_ok=True)
            seconds.append(in_parallel(commands))
        best = min(seconds)
        return each * processes * BLOCK / best / MEGABYTE

    def write_once(self, name, processes):
        # What was written before goes first, whoever wrote it: a virtual machine is slow to get memory that it has not
        # used before, and who comes next should find what the last one has freed.
        plain = measure.fresh(self.work / "plain")
        if name == "plain disk":
            return self.write_rate(plain, processes)
        if name == "passthrough_ll":
            with Passthrough(self.passthrough, self.work, plain) as folder:
                return self.write_rate(folder, processes)
        with Mounted(self.varve, self.work, self.new_store()) as folder:
            (folder / "job" / "1.tmp").mkdir(parents=True)
            rate = self.write_rate(folder / "job" / "1.tmp", processes)
            shutil.rmtree(folder / "job")
        return rate

    def writes(self):
        places = ["plain disk", *(["passthrough_ll"] if self.passthrough else []), "varve mount"]
        rates = {}
        for run in range(self.options.runs):
            for processes in PROCESSES:
                for name in places:
                    self.say(f"writing: {name}, {processes} processes, run {run + 1} of {self.options.runs}")
                    rates.setdefault((name, processes), []).append(self.write_once(name, processes))
        rate = {key: statistics.median(values) for key, values in rates.items()}
        yield f"### Writing {self.options.mebibytes} MiB, up to close\n"
        rows = []
        for name in places:
            cells = [name]
            for processes in PROCESSES:
                share = f"{100 * rate[name, processes] / rate['passthrough_ll', processes]:.1f} %" if self.passthrough else "–"
                cells += [f"{rate[name, processes]:.0f}", share]
            rows.append(cells)
        heads = [cell for processes in PROCESSES
                 for cell in (f"{processes} process{'es' if processes > 1 else ''}, MB/s", "of passthrough")]
        yield report.table(["", *heads], rows)
        if not self.passthrough:
            yield "libfuse's passthrough example is not installed (Debian: libfuse3-dev).\n"
            return
        for processes in PROCESSES:
            share = rate["varve mount", processes] / rate["passthrough_ll", processes]
            self.goal(f"writes up to close, {processes} at a time, of passthrough", f">= {100 * WRITE_SHARE_MIN:.0f}%",
                      f"{100 * share:.1f} %", share >= WRITE_SHARE_MIN)

    # Reading and sealing

    def read_rate(self, folder, processes, size):
        files = measure.files_below(folder)
        parts = [files[i::processes] for i in range(processes)]
        return size / in_parallel([["cat", *part] for part in parts if part]) / MEGABYTE

    def restore_rate(self, store, size, *options):
        target = self.work / "restored"
        shutil.rmtree(target, ignore_errors=True)
        cost = measure.run([str(word) for word in (self.varve, "restore", "--store", store, "job@1", target, *options)])
        return size / cost.wall_seconds / MEGABYTE

    def reads(self):
        source = self.work / "source"
        measure.output([self.options.make_series, source, "--sets", "1", "--edge", str(self.options.edge)])
        folder = next(path for path in sorted(source.iterdir()) if path.is_dir())
        size = measure.tree_bytes(folder)[0]
        for codec in self.options.codecs:
            yield from self.reads_of(folder, size, codec)

    def reads_of(self, folder, size, codec):
        choice = ["--effort", codec] if codec in ("fast", "balanced", "best") else ["--codec", codec]
        rates, seals = {}, {}
        for run in range(self.options.runs):
            self.say(f"{codec}: sealing and reading, run {run + 1} of {self.options.runs}")
            store = self.new_store()
            saved = measure.run([str(word) for word in (self.varve, "save", "--store", store, folder, "--job", "saved", "--step", 1,
                                                        *choice)])
            seals.setdefault("`varve save` of the folder", []).append(saved.wall_seconds)
            store = self.new_store()
            with Mounted(self.varve, self.work, store, *choice) as point:
                (point / "job").mkdir()
                shutil.copytree(folder, point / "job" / "1.tmp")
                os.sync()
                started = time.perf_counter()
                os.rename(point / "job" / "1.tmp", point / "job" / "1")
                seals.setdefault("rename in the mount", []).append(time.perf_counter() - started)
                if run == 0 and not measure.same_trees(folder, point / "job" / "1"):
                    raise measure.CommandFailed("the mount gives back other bytes")
            measure.warm(store)
            rates.setdefault("varve restore", []).append(self.restore_rate(store, size))
            rates.setdefault("varve restore --no-sync", []).append(self.restore_rate(store, size, "--no-sync"))
            for processes in PROCESSES:
                with Mounted(self.varve, self.work, store, "--read-only") as point:
                    name = f"mount, {processes} process{'es' if processes > 1 else ''}"
                    rates.setdefault(name, []).append(self.read_rate(point / "job" / "1", processes, size))
                if self.passthrough:
                    with Passthrough(self.passthrough, self.work, folder) as point:
                        name = f"passthrough_ll of plain files, {processes} process{'es' if processes > 1 else ''}"
                        rates.setdefault(name, []).append(self.read_rate(point, processes, size))
        rate = {name: statistics.median(values) for name, values in rates.items()}
        yield f"### Reading a committed set of {size / MEGABYTE:.0f} MB, {codec}\n"
        base = rate["varve restore"]
        yield report.table(["", "MB/s", "of `varve restore`"],
                           [[name, f"{value:.0f}", f"{100 * value / base:.0f} %"] for name, value in sorted(rate.items())])
        yield f"### From the last close to committed, {size / MEGABYTE:.0f} MB, {codec}\n"
        yield report.table(["", "seconds", "MB/s"],
                           [[name, f"{statistics.median(values):.2f}", f"{size / statistics.median(values) / MEGABYTE:.0f}"]
                            for name, values in seals.items()])
        for processes in PROCESSES:
            share = rate[f"mount, {processes} process{'es' if processes > 1 else ''}"] / base
            self.goal(f"reads, {codec}, {processes} at a time, of `varve restore`", f">= {100 * READ_SHARE_MIN:.0f}%",
                      f"{100 * share:.1f} %", share >= READ_SHARE_MIN)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=pathlib.Path, required=True, help="the program that is measured")
    parser.add_argument("--make-series", type=pathlib.Path, required=True, help="makes the data")
    parser.add_argument("--work", type=pathlib.Path, help="where to work, on the file system to be measured")
    parser.add_argument("--runs", type=int, default=3, help="runs that medians are taken of (3)")
    parser.add_argument("--edge", type=int, help="of the synthetic fields (128: 134 MB; 64 with --quick)")
    parser.add_argument("--mebibytes", type=int, help="to be written (1024; 128 with --quick)")
    parser.add_argument("--codecs", nargs="+", default=["store", "balanced"], help="of the sets that are read (store balanced)")
    parser.add_argument("--quick", action="store_true", help="small data, one run")
    parser.add_argument("--only", choices=["writes", "reads"], action="append")
    parser.add_argument("--write", type=pathlib.Path, help="put the tables into this Markdown file")
    options = parser.parse_args()
    options.varve, options.make_series = options.varve.resolve(), options.make_series.resolve()
    options.edge = options.edge or (64 if options.quick else 128)
    options.mebibytes = options.mebibytes or (128 if options.quick else 1024)
    options.runs = 1 if options.quick else options.runs
    with tempfile.TemporaryDirectory(prefix="varve-mount-", dir=options.work) as work:
        bench = Bench(options, pathlib.Path(work))
        text = []
        for name, part in {"writes": bench.writes, "reads": bench.reads}.items():
            if not options.only or name in options.only:
                for piece in part():
                    text.append(piece)
                    print(piece, flush=True)
        text.append("### What is to be reached\n")
        text.append(report.table(["to reach", "wanted", "measured", ""], bench.goals))
    print("\n".join(text[-2:]))
    if options.write:
        report.write_marked(options.write, "mount.py", "\n\n".join(piece.strip() for piece in text))
    return 0 if all(goal[-1] == "met" for goal in bench.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
