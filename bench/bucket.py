#!/usr/bin/env python3
"""Stores in a bucket, beside restic and a plain copy by rclone, on the same service (tests/s3/radosgw.sh), interleaved.

    bench/bucket.py [--rounds N] [--series FOLDER...]

Each round saves the sets of a series one after the other, restores the last one, and prunes to it: Varve into one part
of the bucket, restic into another. rclone copies the files of a Varve store that has the same sets, and reads them back:
what their bytes take on this service. The table has medians: seconds by the clock, processor seconds, bytes in the bucket.
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARVE = os.environ.get("VARVE_PROGRAM", str(ROOT / "build" / "varve"))


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


def varve(bucket, sets, work):
    store = f"s3://{bucket.name}/{uuid.uuid4()}"
    prefix = store.split("/", 3)[3]
    bucket.run(VARVE, "init", store)
    save = (0.0, 0.0)
    for step, folder in enumerate(sets, 1):
        save = plus(save, bucket.run(VARVE, "save", folder, "--job", "s", "--step", step, "--store", store))
    stored = bucket.bytes(prefix)
    restore = bucket.run(VARVE, "restore", "s", work / "varve", "--store", store)
    prune = bucket.run(VARVE, "prune", "--keep-last", "1", "--store", store)
    return {"save": save, "restore": restore, "prune": prune, "bytes": (stored, bucket.bytes(prefix))}


def restic(bucket, sets, work):
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


def rclone(bucket, sets, work):
    store = work / "store"
    measured([VARVE, "init", store])
    for step, folder in enumerate(sets, 1):
        measured([VARVE, "save", folder, "--job", "s", "--step", step, "--store", store])
    prefix = str(uuid.uuid4())
    save = bucket.run("rclone", "copy", store, f"r:{bucket.name}/{prefix}")
    restore = bucket.run("rclone", "copy", f"r:{bucket.name}/{prefix}", work / "rclone")
    return {"save": save, "restore": restore, "prune": (0.0, 0.0), "bytes": (bucket.bytes(prefix), 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--series", nargs="*", type=pathlib.Path, help="folders whose sub-folders are the sets, in the order of their names")
    arguments = parser.parse_args()
    series = arguments.series or [ROOT / "examples" / "sample" / "implosion"]
    with tempfile.TemporaryDirectory(prefix="varve-bucket-") as folder:
        service = pathlib.Path(folder) / "service"
        script = ROOT / "tests" / "s3" / "radosgw.sh"
        out = subprocess.run([script, "start", service], capture_output=True, text=True, check=True).stdout
        try:
            bucket = Bucket(dict(line.split("=", 1) for line in out.split()))
            for root in series:
                sets = sorted(path for path in root.iterdir() if path.is_dir())
                raw = sum(path.stat().st_size for one in sets for path in one.rglob("*") if path.is_file())
                rounds = {who: [] for who in (varve, restic, rclone)}
                for _ in range(arguments.rounds):
                    for who in rounds:
                        work = pathlib.Path(tempfile.mkdtemp(dir=folder))
                        rounds[who].append(who(bucket, sets, work))
                        shutil.rmtree(work)
                print(f"\n{root.name}: {len(sets)} sets, {raw / 1e6:.1f} MB\n")
                print("|  | save s | CPU s | restore s | CPU s | prune s | CPU s | MB | MB after |")
                print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
                for who, results in rounds.items():
                    row = [statistics.median(result[what][kind] for result in results)
                           for what in ("save", "restore", "prune") for kind in (0, 1)]
                    stored = [statistics.median(result["bytes"][kind] for result in results) / 1e6 for kind in (0, 1)]
                    print(f"| {who.__name__} | " + " | ".join(f"{value:.2f}" for value in row + stored) + " |", flush=True)
        finally:
            subprocess.run([script, "stop", service], check=True)


if __name__ == "__main__":
    main()
