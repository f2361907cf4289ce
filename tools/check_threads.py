#!/usr/bin/env python3
"""Checks that what a lock guards is used under that lock, and that locks are taken in their order.

src/core/thread_annotations.h says which lock guards what; clang compares it with the code (-Wthread-safety). This goes
through the sources that can see something guarded: those that take locks, and those that include a header of their own
folder in which there is a lock. Without clang++ nothing is checked.

    tools/check_threads.py               checks this repository
    tools/check_threads.py FILE...       checks these sources alone
    tools/check_threads.py --self-test   checks the checker against sources with known faults
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tools/varve", "testing")
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wno-everything", "-DFMT_SHARED", "-DVARVE_HAVE_S3", "-DVARVE_HAVE_TLS"]
# The order of locks is checked by what clang 14 still calls beta.
CHECKS = ["-Wthread-safety", "-Wthread-safety-beta", "-Werror=thread-safety", "-Werror=thread-safety-beta"]

LOCK = re.compile(r"\b(?:Mutex|SystemMutex|MutexLock|VARVE_GUARDED_BY)\b")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Of another project, which is not installed.
NOT_INSTALLED = re.compile(r"error: '([^']+)' file not found.*\n *#include <")


def sources():
    """The files that can see something guarded."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.cpp")):
            if path.stem.endswith("_test"):
                continue
            text = path.read_text()
            own = (path.parent / pathlib.Path(name).name for name in INCLUDE.findall(text)
                   if pathlib.Path(name).parent.name in ("", path.parent.name))
            if LOCK.search(text) or any(header.is_file() and LOCK.search(header.read_text()) for header in own):
                yield path


def include_flags():
    flags = [f"-I{ROOT / folder}" for folder in ("include", "src", "tools/varve", "testing", "tests")]
    if shutil.which("pkg-config"):
        for package in ("fuse3", "hdf5", "ompi-c"):
            found = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True)
            flags += [flag.replace("-I", "-isystem", 1) for flag in found.stdout.split() if flag.startswith("-I")]
    return flags


def check(paths, includes):
    """Returns what clang has to say of these files, with the names of those that need what is not installed."""
    def check_one(path):
        command = ["clang++", *FLAGS, *CHECKS, *includes, str(path)]
        return subprocess.run(command, capture_output=True, text=True)

    faults, skipped = [], []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, outcome in zip(paths, pool.map(check_one, paths)):
            missing = NOT_INSTALLED.search(outcome.stderr)
            if outcome.returncode != 0 and missing:
                skipped.append(f"{path}: not checked, <{missing.group(1)}> is not installed")
            elif outcome.returncode != 0:
                faults.append(outcome.stderr)
    return faults, skipped


# One function a line.
SELF_TEST = """
#include "core/sync.h"
namespace varve {
class Counter {
 public:
%s
 private:
  int read() const VARVE_REQUIRES(mutex_) { return value_; }
  Mutex mutex_, first_ VARVE_ACQUIRED_BEFORE(mutex_);
  ConditionVariable changed_;
  int value_ VARVE_GUARDED_BY(mutex_) = 0;
};
}
"""
SELF_TEST_GOOD = [
    "const MutexLock lock(mutex_); return value_;",
    "const MutexLock first(first_); const MutexLock lock(mutex_); return read();",
    "MutexLock lock(mutex_); lock.unlock(); lock.lock(); return value_;",
    "const MutexLock lock(mutex_); while (value_ == 0) changed_.wait(mutex_); return value_;",
    "if (!mutex_.try_lock()) return 0; const MutexLock lock(mutex_, std::adopt_lock); return value_;",
    "const MutexLock lock(mutex_); const auto is_set = [this]() VARVE_REQUIRES(mutex_) { return value_ > 0; };"
    "return changed_.wait_until(mutex_, Moment::max(), is_set) ? value_ : 0;",
]
SELF_TEST_BAD = [
    "return value_;",
    "return read();",
    "const MutexLock lock(first_); return value_;",
    "MutexLock lock(mutex_); lock.unlock(); return value_;",
    "const MutexLock lock(mutex_); const MutexLock first(first_); return 0;",
    "const MutexLock lock(mutex_); const MutexLock again(mutex_); return 0;",
    "changed_.wait(mutex_); return 0;",
    "const MutexLock lock(mutex_); return changed_.wait_until(mutex_, Moment::max(), [this] { return value_ > 0; });",
    "mutex_.lock(); return value_;",
]


def self_test(includes):
    """Every bad function is refused, for what it does with locks, and no good one is."""
    bodies = SELF_TEST_GOOD + SELF_TEST_BAD
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "counter.cpp"
        path.write_text(SELF_TEST % "\n".join(f"int f{number}() {{ {body} }}" for number, body in enumerate(bodies)))
        faults, _ = check([path], includes)
    first_line = SELF_TEST[:SELF_TEST.index("%s")].count("\n") + 1
    refusal = re.compile(r"counter.cpp:(\d+):\d+: error: .*\[-Werror,-Wthread-safety")
    found = {int(line) for line in refusal.findall("".join(faults))}
    wrong = []
    for line, body in enumerate(bodies, first_line):
        if (line in found) != (body in SELF_TEST_BAD):
            wrong.append(f"self-test: {'refused' if line in found else 'not refused'}: {body}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Checks that what a lock guards is used under that lock.")
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="sources to check; none: all")
    arguments = parser.parse_args()
    if not shutil.which("clang++"):
        print("no clang++: what locks guard is not checked", file=sys.stderr)
        return 0
    includes = include_flags()
    if arguments.self_test:
        faults, skipped = self_test(includes), []
    else:
        faults, skipped = check(arguments.files or list(sources()), includes)
    print("\n".join(skipped + faults), end="\n" if skipped or faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
