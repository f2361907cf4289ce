"""The programs that are compared: each can save a set, restore it, and say where it put it."""

import pathlib
import shlex
import shutil

import measure


class Contender:
    """One program with one setting, working in a folder of its own. A new one for each run."""

    name = ""
    programs = ()
    slow = False    # on gigabytes: measured once only
    cached = False  # restores from the page cache, not from the disk

    def __init__(self, work):
        self.work = measure.fresh(pathlib.Path(work))
        self.store = self.work / "store"

    @classmethod
    def missing(cls):
        """Why it cannot take part, or None."""
        absent = [program for program in cls.programs if shutil.which(program) is None]
        return f"{', '.join(absent)} not installed" if absent else None

    def prepare(self):
        """Makes an empty store. Not measured."""
        self.store.mkdir()

    def save(self, folder, step):
        raise NotImplementedError

    def restore(self, step, target):
        raise NotImplementedError

    def stored_bytes(self):
        return measure.tree_bytes(self.store)


class TarPipe(Contender):
    """tar, then a compressor: one file per set."""

    compress = ""
    decompress = ""

    def save(self, folder, step):
        out = shlex.quote(str(self.store / f"{step}.tar.packed"))
        return measure.run(["bash", "-o", "pipefail", "-c", f"tar -cf - . | {self.compress} > {out}"], cwd=folder)

    def restore(self, step, target):
        packed = shlex.quote(str(self.store / f"{step}.tar.packed"))
        return measure.run(["bash", "-o", "pipefail", "-c", f"{self.decompress} < {packed} | tar -xf -"], cwd=target)


class Gzip(TarPipe):
    name, programs, slow = "tar + gzip -6", ("tar", "gzip"), True
    compress, decompress = "gzip -6", "gzip -dc"


class Pigz(TarPipe):
    name, programs, slow = "tar + pigz", ("tar", "pigz"), True
    compress, decompress = "pigz", "pigz -dc"


class Zstd(TarPipe):
    name, programs = "tar + zstd -3", ("tar", "zstd")
    compress, decompress = "zstd -q -3", "zstd -q -dc"


class Restic(Contender):
    name, programs = "restic", ("restic",)

    def _run(self, *arguments, cwd=None):
        environment = {"RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(self.store),
                       "RESTIC_CACHE_DIR": str(self.work / "cache")}
        return measure.run(["restic", "--quiet", *arguments], cwd=cwd, environment=environment)

    def prepare(self):
        self._run("init")

    def save(self, folder, step):
        return self._run("backup", "--host", "bench", "--tag", f"step{step}", ".", cwd=folder)

    def restore(self, step, target):
        return self._run("restore", "latest", "--tag", f"step{step}", "--target", str(target))


class Borg(Contender):
    name, programs = "borg (lz4)", ("borg",)
    create_options = ("--compression", "lz4")

    def _run(self, *arguments, cwd=None):
        environment = {"BORG_REPO": str(self.store), "BORG_BASE_DIR": str(self.work / "base"),
                       "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
        return measure.run(["borg", *arguments], cwd=cwd, environment=environment)

    def prepare(self):
        self._run("init", "--encryption", "none")

    def save(self, folder, step):
        return self._run("create", *self.create_options, f"::step{step}", ".", cwd=folder)

    def restore(self, step, target):
        return self._run("extract", f"::step{step}", cwd=target)


class BorgFixed(Borg):
    name = "borg (fixed 8 KiB, none)"
    create_options = ("--compression", "none", "--chunker-params", "fixed,8192")


class Varve(Contender):
    program = None  # set by the benchmark: the binary that is measured
    save_options = ()

    @classmethod
    def missing(cls):
        return None if cls.program and pathlib.Path(cls.program).is_file() else f"{cls.program} not built"

    def _run(self, *arguments):
        return measure.run([self.program, *map(str, arguments)], environment={"VARVE_STORE": str(self.store)})

    def prepare(self):
        self._run("init", self.store)

    def save(self, folder, step):
        return self._run("save", folder, "--job", "bench", "--step", step, *self.save_options)

    def restore(self, step, target):
        return self._run("restore", f"bench@{step}", target)


class VarveFast(Varve):
    name, save_options = "varve --effort fast", ("--effort", "fast")


class VarveBalanced(Varve):
    name, save_options = "varve --effort balanced", ("--effort", "balanced")


class VarveBest(Varve):
    name, save_options = "varve --effort best", ("--effort", "best")


class VarveStore(Varve):
    name, save_options = "varve --codec store", ("--codec", "store", "--chunker", "fixed:8192")


class VarveStoreCached(VarveStore):
    """As after a crash of the program, not of the machine: what was saved last is still in memory."""

    name, cached = "varve --codec store, from the page cache", True


class Copy(Contender):
    """No store at all: what the machine's disk allows whoever writes, or restores, all bytes durably."""

    name, programs = "cp -r, sync", ("cp", "sync")

    def _copy(self, source, target):
        return measure.run(["bash", "-c", 'cp -r "$0"/. "$1" && sync -f "$1"', str(source), str(target)])

    def save(self, folder, step):
        return self._copy(folder, measure.fresh(self.store / str(step)))

    def restore(self, step, target):
        return self._copy(self.store / str(step), target)


class VarveBounded(Varve):
    name = "varve --memory 512M"
    bound_bytes = 512 << 20
    save_options = ("--codec", "store", "--chunker", "fixed:8192", "--memory", "512M")


ON_REAL_DATA = (Copy, Gzip, Pigz, Zstd, Restic, Borg, VarveFast, VarveBalanced, VarveBest)
ON_SYNTHETIC_DATA = (Copy, Gzip, Pigz, Zstd, Restic, BorgFixed, VarveStore, VarveStoreCached, VarveBalanced)
