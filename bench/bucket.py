#!/usr/bin/env python3
"""Stores in a bucket, beside restic and a plain copy by rclone, on the same service (tests/s3/radosgw.sh), interleaved.

    ./run bench bucket [--rounds N] [--quick]

Each round saves the sets of a series one after the other, restores the last one, and prunes to it: Varve into one part
of the bucket, restic into another. rclone copies what each save has added to the files of a Varve store, and reads back
one that has the last set alone: what these bytes take on this service. Medians: seconds by the clock, processor seconds,
bytes in the bucket. Varve should be ahead of restic in each, and take at most a fifth more than rclone.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import series

ROOT = pathlib.Path(__file__).resolve().parents[1]
REAL = ("enzo_implosion_io32", "enzo_cosmology64_io32_8ranks")
LIMIT = 1.2  # of rclone's time


def measured(command, **options):
    """Runs a command; returns its seconds by the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def plus(a, b):
    return a[0] + b[0], a[1] + b[1]


class Bucket:
    def __init__(self, environment):
        self.environment = {**os.environ, **environment, "RESTIC_PASSWORD": "bench"}
        self.environment.pop("AWS_CA_BUNDLE", None)  # rclone does not know what to do with it
        self.name = environment["VARVE_S3_TEST_BUCKET"]
        endpoint = environment["AWS_ENDPOINT_URL_S3"]
        self.endpoint = endpoint
        self.environment.update(RCLONE_CONFIG_R_TYPE="s3", RCLONE_CONFIG_R_PROVIDER="Ceph", RCLONE_CONFIG_R_ENDPOINT=endpoint,
                                RCLONE_CONFIG_R_ACCESS_KEY_ID=environment["AWS_ACCESS_KEY_ID"],
                                RCLONE_CONFIG_R_SECRET_ACCESS_KEY=environment["AWS_SECRET_ACCESS_KEY"])

    def run(self, *command):
        return measured(command, env=self.environment)

    def bytes(self, prefix):
        out = subprocess.run(["rclone", "size", "--json", f"r:{self.name}/{prefix}"], capture_output=True, text=True, check=True,
                             env=self.environment).stdout
        return int(json.loads(out)["bytes"])


def varve(program, bucket, sets, work):
    store = f"s3://{bucket.name}/{uuid.uuid4()}"
    prefix = store.split("/", 3)[3]
    bucket.run(program, "init", store)
    save = (0.0, 0.0)
    for step, folder in enumerate(sets, 1):
        save = plus(save, bucket.run(program, "save", folder, "--job", "s", "--step", step, "--store", store))
    stored = bucket.bytes(prefix)
    restore = bucket.run(program, "restore", "s", work / "varve", "--store", store)
    prune = bucket.run(program, "prune", "--keep-last", "1", "--store", store)
    return {"save": save, "restore": restore, "prune": prune, "bytes": (stored, bucket.bytes(prefix))}


def restic(_, bucket, sets, work):
    prefix = str(uuid.uuid4())
    repository = ["restic", "--quiet", "--repo", f"s3:{bucket.endpoint}/{bucket.name}/{prefix}", "--cache-dir", work / "restic-cache"]
    bucket.run(*repository, "init")
    save = (0.0, 0.0)
    for folder in sets:
        save = plus(save, bucket.run(*repository, "backup", "--host", "s", folder))
    stored = bucket.bytes(prefix)
    restore = bucket.run(*repository, "restore", "latest", "--target", work / "restic")
    prune = bucket.run(*repository, "forget", "--group-by", "host", "--keep-last", "1", "--prune")
    return {"save": save, "restore": restore, "prune": prune, "bytes": (stored, bucket.bytes(prefix))}


def rclone(program, bucket, sets, work):
    def local(store, step, folder):
        measured([program, "save", folder, "--job", "s", "--step", step, "--store", store])

    store, prefix, save = work / "store", str(uuid.uuid4()), (0.0, 0.0)
    measured([program, "init", store])
    for step, folder in enumerate(sets, 1):
        local(store, step, folder)
        save = plus(save, bucket.run("rclone", "copy", store, f"r:{bucket.name}/{prefix}"))
    last = work / "last"
    measured([program, "init", last])
    local(last, len(sets), sets[-1])
    bucket.run("rclone", "copy", last, f"r:{bucket.name}/{prefix}-last")
    restore = bucket.run("rclone", "copy", f"r:{bucket.name}/{prefix}-last", work / "rclone")
    return {"save": save, "restore": restore, "prune": None,
            "bytes": (bucket.bytes(prefix), bucket.bytes(f"{prefix}-last"))}


def medians(results):
    """By what was done: seconds by the clock and of the processor; or bytes."""
    return {what: None if results[0][what] is None else
            tuple(statistics.median(result[what][kind] for result in results) for kind in (0, 1)) for what in results[0]}


def tell(one, of_all):
    """Prints the table of a series, and what was asked for and missed."""
    print(f"\n{one.name}: {len(one.sets)} sets, {sum(one.set_bytes()) / 1e6:.1f} MB\n")
    print("|  | save s | CPU s | restore s | CPU s | prune s | CPU s | MB | MB after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for who, result in of_all.items():
        times = [f"{value:.2f}" for what in ("save", "restore", "prune") for value in (result[what] or ())]
        times += ["–"] * (6 - len(times))
        print(f"| {who} | " + " | ".join(times + [f"{value / 1e6:.2f}" for value in result["bytes"]]) + " |", flush=True)
    own = of_all["varve"]
    for who, what, factor in [("restic", what, 1) for what in ("save", "restore", "prune")] + \
            [("rclone", what, LIMIT) for what in ("save", "restore")]:
        share = own[what][0] / of_all[who][what][0]
        if share > factor:
            print(f"missed: {what} takes {share:.2f} times as long as with {who}, more than {factor}", flush=True)


def find_series(options, work):
    found = []
    data = os.environ.get("VARVE_TEST_DATA")
    if data:
        found += [one for one in series.find_real(pathlib.Path(data), work / "real") if one.name in REAL]
    if not found:
        found += series.find_real(ROOT / "examples" / "sample", work / "real")
    return found + [series.make_synthetic(options.make_series, work, "synthetic", 16, 3 if options.quick else 5, options.edge)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=pathlib.Path, required=True, help="the program that is measured")
    parser.add_argument("--make-series", type=pathlib.Path, required=True, help="makes the synthetic data")
    parser.add_argument("--rounds", type=int, help="that medians are taken of (5; 1 with --quick)")
    parser.add_argument("--edge", type=int, help="of the synthetic fields (128: 134 MB a set; 64 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small data, one round")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.edge = options.edge or (64 if options.quick else 128)
    program = options.varve.resolve()
    with tempfile.TemporaryDirectory(prefix="varve-bucket-") as folder:
        work = pathlib.Path(folder)
        service = work / "service"
        script = ROOT / "tests" / "s3" / "radosgw.sh"
        out = subprocess.run([script, "start", service], capture_output=True, text=True, check=True).stdout
        try:
            bucket = Bucket(dict(line.split("=", 1) for line in out.split()))
            for one in find_series(options, work):
                sets = [path for _, path in one.sets]
                rounds = {who: [] for who in (varve, restic, rclone)}
                for _ in range(options.rounds):
                    for who in rounds:
                        place = pathlib.Path(tempfile.mkdtemp(dir=folder))
                        rounds[who].append(who(program, bucket, sets, place))
                        shutil.rmtree(place)
                tell(one, {who.__name__: medians(results) for who, results in rounds.items()})
        finally:
            subprocess.run([script, "stop", service], check=True)


if __name__ == "__main__":
    main()
