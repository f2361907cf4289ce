#!/usr/bin/env python3
"""Measures stores on servers, pushes to deeper levels, the index of known chunks, and redundancy.

    bench/levels.py --varve build/varve --programs build/bench [--quick] [--write FILE]

Servers are processes of this machine, and their folders lie on the same file system as the directory that they are
compared with, so that what is measured is what the servers add. A restore is checked once for every kind of place.
Numbers are medians of --runs runs; the places take turns. Every write is durable when it is counted.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import report

MEGABYTE = 1e6
CHUNK_BYTES = 8192
SERVER_SHARE_MIN = 0.8    # of the directory's speed, one client
CLIENTS = 8
CONNECTIONS = 10_000
CONNECTIONS_GB_MAX = 1.0  # resident, of a server that holds them
CLIENTS_SHARE_MIN = 1.0   # of the throughput of one client
KNOWN_SHARE = 0.9
SENT_SHARE_MAX = 0.11
PARITY_GB_MIN = 2.0       # per second and core
INDEX_CHUNKS = 100_000_000
START_SECONDS_MAX = 10


class Servers:
    """So many `varve serve`, each with a folder of its own, for the time of a `with`."""

    def __init__(self, varve, work, kind, count):
        self.varve, self.work, self.kind, self.count = varve, work, kind, count
        self.processes, self.addresses = [], []

    def __enter__(self):
        key = self.work / "key"
        if not key.exists():
            measure.output([self.varve, "serve", "--new-key", key])
        self.environment = {"VARVE_KEY_FILE": str(key)}
        for number in range(self.count):
            folder = self.work / f"place{number}"
            listen = f"unix:{self.work}/socket{number}" if self.kind == "unix" else "tcp://127.0.0.1:0"
            command = [self.varve, "serve", "--listen", listen, "--dir", folder]
            if self.count > 1:
                command.append("--place")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                       env={**os.environ, **self.environment})
            self.processes.append(process)
            self.addresses.append(process.stdout.readline().split(" at ")[-1].strip())
        prefix = "unix:" if self.kind == "unix" else "tcp://"
        self.location = prefix + ",".join(address[len(prefix):] for address in self.addresses)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(timeout=30)


class Place:
    """Where a store is: a directory, or servers of one kind."""

    def __init__(self, name, kind, count):
        self.name, self.kind, self.count = name, kind, count

    def measure(self, varve, work, action):
        """What action(location, environment) returns, with a new store there."""
        measure.fresh(work)
        if self.kind == "directory":
            location = str(work / "store")
            measure.output([varve, "init", location])
            return action(location, {})
        with Servers(varve, work, self.kind, self.count) as servers:
            self.processes = servers.processes
            if self.count > 1:
                subprocess.run([varve, "init", servers.location], check=True, stdout=subprocess.DEVNULL,
                               env={**os.environ, **servers.environment})
            return action(servers.location, servers.environment)


PLACES = [Place("directory", "directory", 0)] + [
    Place(f"{count} server{'s' if count > 1 else ''}, {name}", kind, count)
    for kind, name in (("unix", "Unix socket"), ("tcp", "TCP with TLS")) for count in (1, 2, 4)]


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.varve = options.varve
        self.goals = []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def goal(self, what, wanted, measured, met):
        self.goals.append([what, wanted, measured, "met" if met else "NOT MET"])

    # One client

    def one_client(self):
        source = self.work / "source"
        edge = self.options.edge
        measure.output([self.options.programs / "make_series", source, "--sets", "1", "--edge", str(edge)])
        folder = next(path for path in sorted(source.iterdir()) if path.is_dir())
        size = measure.tree_bytes(folder)[0]
        rates = {}
        for run in range(self.options.runs):
            for codec in ("store", "balanced"):
                for place in PLACES:
                    self.say(f"one client, {codec}: {place.name}, run {run + 1} of {self.options.runs}")
                    rates.setdefault((codec, place.name), []).append(
                        place.measure(self.varve, self.work / "place",
                                      lambda location, environment: self.save_and_restore(
                                          folder, size, codec, location, environment, run == 0)))
        for codec in ("store", "balanced"):
            yield f"### One client, {'--codec store' if codec == 'store' else '--effort balanced'}, {size / MEGABYTE:.0f} MB\n"
            rows = []
            base = None
            for place in PLACES:
                save, restore = (statistics.median(rate[i] for rate in rates[codec, place.name]) for i in (0, 1))
                base = base or (save, restore)
                shares = (save / base[0], restore / base[1])
                rows.append([place.name, f"{save:.0f}", report.percent(shares[0]), f"{restore:.0f}",
                             report.percent(shares[1])])
                if place.count:
                    for what, share in zip(("save", "restore"), shares):
                        self.goal(f"{codec}, {place.name}: {what}, of the directory's speed",
                                  f">= {SERVER_SHARE_MIN:.0%}", report.percent(share), share >= SERVER_SHARE_MIN)
            yield report.table(["store", "save MB/s", "of the directory", "restore MB/s", "of the directory"], rows)

    def save_and_restore(self, folder, size, codec, location, environment, check):
        shrink = ["--codec", "store"] if codec == "store" else ["--effort", "balanced"]
        measure.warm(folder)
        saved = measure.run([self.varve, "save", folder, "--store", location, "--job", "bench", "--step", "1", *shrink],
                            environment=environment)
        target = measure.fresh(self.work / "restored")
        # Durable, as the default is: what stays in the page cache alone takes as long as the system happens to need for it.
        restored = measure.run([self.varve, "restore", "bench@1", target, "--store", location], environment=environment)
        if check and not measure.same_trees(folder, target):
            raise measure.CommandFailed(f"what {location} restores is not what was saved")
        return size / MEGABYTE / saved.wall_seconds, size / MEGABYTE / restored.wall_seconds

    # Many clients

    def many_clients(self):
        source = self.work / "clients"
        numbers, bytes_each = random.Random(2), (4 if self.options.quick else 64) * 1024 * 1024
        folders = []
        for client in range(CLIENTS):
            folders.append(measure.fresh(source / str(client)))
            (folders[-1] / "state.bin").write_bytes(numbers.randbytes(bytes_each))
        size = measure.tree_bytes(folders[0])[0]
        yield f"### {CLIENTS} clients at a time, each {size / MEGABYTE:.0f} MB of random data, --codec store\n"
        rows = []
        for place in PLACES:
            self.say(f"{CLIENTS} clients: {place.name}")
            one = statistics.median(place.measure(self.varve, self.work / "place",
                                                  lambda *there: self.all_save(folders[:1], size, *there))
                                    for _ in range(self.options.runs))
            many = statistics.median(place.measure(self.varve, self.work / "place",
                                                   lambda *there: self.all_save(folders, size, *there))
                                     for _ in range(self.options.runs))
            rows.append([place.name, f"{one:.0f}", f"{many:.0f}", report.percent(many / one)])
            self.goal(f"{place.name}: {CLIENTS} clients, of the throughput of one", f">= {CLIENTS_SHARE_MIN:.0%}",
                      report.percent(many / one), many / one >= CLIENTS_SHARE_MIN)
        yield report.table(["store", "1 client MB/s", f"{CLIENTS} clients MB/s, in all", "of one"], rows)

    def all_save(self, folders, size, location, environment):
        for folder in folders:
            measure.warm(folder)
        os.sync()
        began = time.perf_counter()
        clients = [subprocess.Popen([self.varve, "save", folder, "--store", location, "--job", f"client{number}",
                                     "--step", "1", "--codec", "store", "--threads", "1"], stdout=subprocess.DEVNULL,
                                    env={**os.environ, **environment})
                   for number, folder in enumerate(folders)]
        if any(client.wait() != 0 for client in clients):
            raise measure.CommandFailed(f"a client of {location} failed")
        return len(folders) * size / MEGABYTE / (time.perf_counter() - began)

    # Many connections

    def connections(self):
        count, seconds = (1000, 1) if self.options.quick else (CONNECTIONS, 5)
        rows = []
        for place in PLACES:
            if place.count != 1:
                continue
            for connections, threads in ((1, 1), (CLIENTS, CLIENTS), (count, CLIENTS)):
                self.say(f"{connections} connections: {place.name}")
                runs = [place.measure(self.varve, self.work / "place",
                                      lambda location, environment: self.hold_connections(
                                          place, location, environment, connections, threads, seconds))
                        for _ in range(self.options.runs)]
                rate = statistics.median(run["ask"]["per_second"] for run in runs)
                idle, busy = (max(run[step]["VmRSS"] for run in runs) * 1024 for step in ("connect", "write"))
                peak = max(run["write"]["VmHWM"] for run in runs) * 1024
                rows.append([place.name, str(connections), f"{rate:.0f}", f"{idle / MEGABYTE:.0f}",
                             f"{busy / MEGABYTE:.0f}", f"{peak / MEGABYTE:.0f}",
                             str(max(run["write"]["Threads"] for run in runs))])
                if connections == count:
                    self.goal(f"{place.name}: {count} connections, GB of memory", f"< {CONNECTIONS_GB_MAX:.0f}",
                              f"{peak / 1e9:.2f}", peak < CONNECTIONS_GB_MAX * 1e9)
        yield f"### Many connections to one server, at most {CLIENTS} of them at work\n"
        yield report.table(["store", "connections", "requests/s, in turn", "resident MB, connected",
                            "after a MiB was written over each", "peak", "threads"], rows)

    def hold_connections(self, place, location, environment, connections, threads, seconds):
        key = environment["VARVE_KEY_FILE"] if place.kind == "tcp" else "-"
        return json.loads(measure.output([self.options.programs / "many_connections", location, key,
                                          str(place.processes[0].pid), str(connections), str(threads),
                                          str(seconds)]))

    # A push of what is known for the most part

    def push(self):
        self.say("a push of a set that is known but for a tenth")
        source, numbers = self.work / "push", random.Random(1)
        measure.fresh(source)
        blocks = (32 if self.options.quick else 512) * 1024 * 1024 // CHUNK_BYTES
        state = bytearray().join(numbers.randbytes(CHUNK_BYTES) for _ in range(blocks))
        near, far = self.work / "near", self.work / "far"
        for store in (near, far):
            measure.fresh(store)
            measure.output([self.varve, "init", store])
        rows = []
        for step in (1, 2):
            (source / "state.bin").write_bytes(state)
            measure.output([self.varve, "save", source, "--store", near, "--job", "push", "--step", str(step)])
            began = time.perf_counter()
            pushed = json.loads(measure.output([self.varve, "push", f"push@{step}", "--store", near, "--to", far,
                                                "--json"]))
            seconds = time.perf_counter() - began
            sent = sum(entry["sent_bytes"] for entry in pushed["sets"])
            rows.append([f"set {step}", f"{len(state) / MEGABYTE:.0f}", f"{sent / MEGABYTE:.1f}",
                         report.percent(sent / len(state)), f"{seconds:.2f}"])
            for block in numbers.sample(range(blocks), blocks - int(blocks * KNOWN_SHARE)):
                state[block * CHUNK_BYTES:(block + 1) * CHUNK_BYTES] = numbers.randbytes(CHUNK_BYTES)
        share = sent / len(state)
        self.goal("push of a set of which 90 % is known: bytes sent", f"<= {SENT_SHARE_MAX:.0%}",
                  report.percent(share), share <= SENT_SHARE_MAX)
        yield "### Push: random data, a tenth of the 8 KiB blocks new in the second set\n"
        yield report.table(["", "MB", "sent MB", "of the set", "s"], rows)

    # What Google Benchmark measures

    def google(self, program, filter_text, environment=None):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [self.options.programs / program, f"--benchmark_filter={filter_text}",
                       f"--benchmark_out={out.name}", "--benchmark_out_format=json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env={**os.environ, **(environment or {})})
            return json.load(open(out.name, encoding="utf-8"))["benchmarks"]

    def index(self):
        chunks = INDEX_CHUNKS // 100 if self.options.quick else INDEX_CHUNKS
        self.say(f"an index of {chunks} chunks")
        rows = []
        for result in self.google("index_bench", ".", {"VARVE_BENCH_CHUNKS": str(chunks),
                                                       "TMPDIR": str(self.work)}):
            rows.append([result["name"].split("/")[1].replace("_", " "), f"{result['items_per_second'] / 1e6:.1f}",
                         f"{result['hits']:.3f}", f"{result['resident_MB']:.0f}"])
        millions = chunks / 1e6
        yield (f"### Index of {chunks:,} chunks ({chunks * CHUNK_BYTES / 1e12:.2f} TB in chunks of 8 KiB), one thread\n\n"
               f"The file has {result['file_MB']:.0f} MB ({result['file_MB'] / millions:.1f} MB for each million chunks); "
               f"of it, the filter has {result['filter_MB']:.0f} MB ({result['filter_MB'] / millions:.2f}). "
               "The filter is held in memory as far as it is looked at, and at most 256 MiB of the rest.\n")
        yield report.table(["look-ups", "millions/s", "found", "resident MB"], rows)

    def parity(self):
        self.say("parity")
        rows = []
        rates = {}
        for result in self.google("erasure_bench", "encode"):
            rates[result["name"]] = result["bytes_per_second"] / 1e9
            rows.append([result["name"], f"{rates[result['name']]:.2f}"])
        for what, end in (("XOR", "/4/1"), ("RS 4+2", "/4/2")):
            best = max((rate for name, rate in rates.items() if name.endswith(end)), default=0)
            self.goal(f"parity of {what}, GB/s per core", f">= {PARITY_GB_MIN:.0f}", f"{best:.1f}", best >= PARITY_GB_MIN)
        yield "### Parity, one core\n"
        yield report.table(["code", "GB/s of data"], rows)
        self.say("rebuilding a node")
        rows = []
        mebibytes = 64 if self.options.quick else 256
        for result in json.loads(measure.output([self.options.programs / "rebuild_nodes", self.work, str(mebibytes)])):
            cells = [f"{result[what]['seconds']:.2f} s, {result[what]['mb_per_s']:.0f} MB/s"
                     for what in ("protect", "rebuild", "rebuild_reading")]
            rows.append([f"{result['scheme']}, {result['nodes']} nodes", *cells])
        yield (f"### Stores of nodes, {mebibytes} MiB each; the nodes are threads that share this machine\n\n"
               "Protecting: all nodes' data. Rebuilding: the lost node's files; by names and lengths, or reading all first.\n")
        yield report.table(["", "protect", "rebuild", "rebuild, reading all"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=pathlib.Path, required=True, help="the program that is measured")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of make_series and the benchmarks")
    parser.add_argument("--work", type=pathlib.Path, help="where to work, on the file system to be measured")
    parser.add_argument("--runs", type=int, default=3, help="runs that medians are taken of (3)")
    parser.add_argument("--edge", type=int, help="of the synthetic fields (256: 1.07 GB; 64 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small data, one run")
    parser.add_argument("--only", choices=["one", "many", "connections", "push", "index", "parity"], action="append")
    parser.add_argument("--write", type=pathlib.Path, help="put the tables into this Markdown file")
    options = parser.parse_args()
    options.varve, options.programs = options.varve.resolve(), options.programs.resolve()
    options.edge = options.edge or (64 if options.quick else 256)
    options.runs = 1 if options.quick else options.runs
    with tempfile.TemporaryDirectory(prefix="varve-levels-", dir=options.work) as work:
        bench = Bench(options, pathlib.Path(work))
        parts = {"one": bench.one_client, "many": bench.many_clients,
                 "connections": bench.connections, "push": bench.push, "index": bench.index,
                 "parity": bench.parity}
        text = []
        for name, part in parts.items():
            if not options.only or name in options.only:
                for piece in part():
                    text.append(piece)
                    print(piece, flush=True)
        text.append("### What is to be reached\n")
        text.append(report.table(["to reach", "wanted", "measured", ""], bench.goals))
    print("\n".join(text[-2:]))
    if options.write:
        report.write_marked(options.write, "levels.py", "\n\n".join(piece.strip() for piece in text))
    return 0 if all(goal[-1] == "met" for goal in bench.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
