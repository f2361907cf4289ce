"""What the tests of the examples share: runs under the launcher, in folders of their own, and killing all of a run."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

LAUNCHER = os.environ.get("VARVE_LAUNCHER", "").split()
RANK_COUNTS = (1, 2, 4) if LAUNCHER else (1,)
MANY_RANKS = RANK_COUNTS[-1]
RUN_SECONDS_MAX = 300


def children_of(process_id):
    """The processes that this one started, as /proc tells."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            # The name, in parentheses, may hold anything; the parent is the second field after it.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) if entry.name.isdigit() else None
        except (OSError, ValueError, IndexError):
            continue
        if parent == process_id:
            found.append(int(entry.name))
    return found


class ExampleTest(unittest.TestCase):
    """Gives each test a folder of its own, with a store and a memory folder in it."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-examples-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def environment(self, name, changes):
        """`name`: runs of one name share their checkpoints."""
        memory = self.work / f"{name}-memory"
        memory.mkdir(exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VARVE_")}
        return {**kept, "VARVE_STORE": str(self.work / f"{name}-store"), "VARVE_SHARED_MEMORY": str(memory), **changes}

    def start(self, name, ranks, *command, **changes):
        launch = [*LAUNCHER, str(ranks)] if LAUNCHER else []
        return subprocess.Popen([*launch, *str(command[0]).split(), *map(str, command[1:])], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, cwd=self.work,
                                env=self.environment(name, changes))

    def run_alone(self, name, ranks, *command, **changes):
        """Returns what it printed."""
        process = self.start(name, ranks, *command, **changes)
        out, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        self.assertEqual(process.returncode, 0, out)
        return out

    def run_to_end(self, name, ranks, *command, **changes):
        """Returns what it printed. Nothing of it is left in memory."""
        out = self.run_alone(name, ranks, *command, **changes)
        self.assertEqual(list((self.work / f"{name}-memory").iterdir()), [])
        return out

    def run_and_kill(self, name, ranks, sign, *command, **changes):
        """Kills all ranks and the launcher as soon as a line begins with `sign`."""
        process = self.start(name, ranks, *command, **changes)
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith(sign):
                break
        self.assertIsNone(process.poll(), "".join(seen))
        self.kill_all(process)

    def kill_all(self, process):
        for victim in [*(children_of(process.pid) if LAUNCHER else []), process.pid]:
            with contextlib.suppress(ProcessLookupError):  # who starts them may have taken note first
                os.kill(victim, signal.SIGKILL)
        process.stdout.read()  # ends when all of them are dead
        process.stdout.close()
        process.wait()

    def varve_facts(self, name, *arguments):
        """What `varve ... --json` says of a run's store."""
        said = subprocess.run([os.environ["VARVE_PROGRAM"], *arguments, "--json"], check=False, capture_output=True,
                              text=True, env=self.environment(name, {}))
        self.assertEqual(said.returncode, 0, said.stderr)
        return json.loads(said.stdout)


def found(pattern, text):
    """What the pattern's group matched; fails if it is not in the text."""
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise AssertionError(f"{pattern!r} is not in:\n{text}")
    return match.group(1)
