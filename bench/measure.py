"""Runs a command and says what it took; sizes and comparisons of folders."""

import dataclasses
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

READ_BYTES = 1 << 20
# For more ranks than processors, with either MPI library of Debian.
LAUNCHER_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class CommandFailed(Exception):
    """A measured command ended with an error: what it was, and the end of what it said."""


@dataclasses.dataclass(frozen=True)
class Cost:
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0  # user and system, of the command and all it waited for
    peak_bytes: int = 0       # resident, of the largest process

    def __add__(self, other):
        return Cost(self.wall_seconds + other.wall_seconds, self.cpu_seconds + other.cpu_seconds,
                    max(self.peak_bytes, other.peak_bytes))


class HeldMemory:
    """Keeps nearly all memory of a virtual machine in use, as that of a machine that has run for a while.

    Virtual machines give free memory back to their host. Its next touch then costs up to 2.5 ns a byte, by chance, in
    whatever command comes first. Memory that the page cache holds stays with the machine, and is as quickly taken as
    free memory is elsewhere. So the holes of a large empty file are read into the page cache until little is free."""

    FREE_BYTES = 1500 << 20  # the kernel itself keeps some free

    def __init__(self):
        self.file = None
        self.offset = 0

    @staticmethod
    def _memory(field):
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

    def take(self):
        with open("/proc/cpuinfo", encoding="ascii") as cpu:
            if " hypervisor" not in cpu.read():
                return
        total = self._memory("MemTotal")
        if self.file is None:
            self.file = tempfile.TemporaryFile()
            self.file.truncate(2 * total)
        taken, window = 0, bytearray(READ_BYTES)
        while self._memory("MemFree") > self.FREE_BYTES and taken < total:
            for _ in range(64):
                taken += os.preadv(self.file.fileno(), [window], self.offset)
                self.offset = (self.offset + READ_BYTES) % (2 * total // READ_BYTES * READ_BYTES)


held_memory = HeldMemory()


def run(command, cwd=None, environment=None):
    """Runs `command` to its end and returns its Cost. Earlier writes are on disk before the clock starts."""
    os.sync()
    held_memory.take()
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **(environment or {})},
                                   stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, wait_status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(wait_status)
        if process.returncode != 0:
            said.seek(max(0, said.tell() - 2000))
            text = said.read().decode(errors="replace").strip()
            raise CommandFailed(f"{' '.join(map(str, command))} ended with {process.returncode}: {text}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def output(command):
    """What a command prints; fails as run() does."""
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise CommandFailed(f"{' '.join(map(str, command))} ended with {said.returncode}: {said.stderr[-2000:].strip()}")
    return said.stdout


def median(costs):
    return Cost(statistics.median(cost.wall_seconds for cost in costs),
                statistics.median(cost.cpu_seconds for cost in costs),
                int(statistics.median(cost.peak_bytes for cost in costs)))


def files_below(folder):
    return sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file() and not path.is_symlink())


def tree_bytes(folder):
    """Bytes of the files below `folder`: (by their lengths, by the blocks they take)."""
    apparent = allocated = 0
    for path in files_below(folder):
        status = path.stat()
        apparent += status.st_size
        allocated += status.st_blocks * 512
    return apparent, allocated


def warm(folder):
    """Reads all files once, so that every tool finds its source in the page cache."""
    for path in files_below(folder):
        with open(path, "rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass


def cool(folder):
    """Takes all files out of the page cache, so that every tool finds what it saved on the disk."""
    os.sync()
    for path in files_below(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def same_bytes(left, right):
    with open(left, "rb", buffering=0) as a, open(right, "rb", buffering=0) as b:
        while True:
            x, y = a.read(READ_BYTES), b.read(READ_BYTES)
            if x != y:
                return False
            if not x:
                return True


def same_trees(left, right):
    """Whether two folders hold the same files with the same bytes."""
    names = [sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*"))
             for folder in (left, right)]
    if names[0] != names[1]:
        return False
    return all(same_bytes(path, pathlib.Path(right) / path.relative_to(left)) for path in files_below(left))


def fresh(folder):
    """An empty folder at this path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
