#!/usr/bin/env python3
"""Shows that the simulated cluster finds what it is for: re-introduces known bugs, one at a time, and counts schedules.

Each patch in this folder brings back one bug that was mended. It is applied to a copy of the tree, which is built; then
schedules are played until one breaks. The table that is printed is in docs/SIMULATION.md.

  tests/sim/show_that_it_fails.py [--folder FOLDER] [--schedules-max COUNT] [PATCH...]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(*words, cwd, **options):
    return subprocess.run(words, cwd=cwd, check=True, text=True, **options)


def theme_of(patch):
    """The first line of a patch says what theme finds it, and the second what the bug is."""
    lines = patch.read_text().splitlines()
    return lines[0].removeprefix("theme: "), lines[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="for the copy and its build; kept, so that the next time is faster")
    parser.add_argument("--schedules-max", type=int, default=20000)
    parser.add_argument("patches", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    folder = pathlib.Path(options.folder or tempfile.mkdtemp(prefix="varve-sim-"))
    tree = folder / "tree"
    if not tree.exists():
        run("git", "worktree", "add", "--detach", str(tree), "HEAD", cwd=ROOT)
    missed = 0
    print("| bug | theme | schedules until it was found |\n| --- | --- | --- |")
    for patch in options.patches or sorted(HERE.glob("*.patch")):
        theme, bug = theme_of(patch)
        run("git", "reset", "--quiet", "--hard", cwd=tree)
        run("git", "apply", "--3way", str(patch.resolve()), cwd=tree)
        run("cmake", "--preset", "ci", cwd=tree, stdout=subprocess.DEVNULL)
        run("cmake", "--build", "--preset", "ci", "--target", "varve_sim", cwd=tree, stdout=subprocess.DEVNULL)
        played = subprocess.run(
            [str(tree / "build/ci/testing/sim/varve_sim"), theme, "seeds", "1", str(options.schedules_max)],
            text=True, stdout=subprocess.PIPE)
        found = re.search(r"^seed (\d+): ", played.stdout, re.MULTILINE)
        missed += found is None
        print(f"| {bug} | {theme} | {found.group(1) if found else 'not found'} |", flush=True)
    run("git", "reset", "--quiet", "--hard", cwd=tree)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
