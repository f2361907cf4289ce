#!/usr/bin/env python3
"""Compares the table of what levels promise, as the simulated cluster checks it, with the one of docs/GUIDE.md.

  tests/sim/check_promises.py PATH/TO/varve_sim
"""

import pathlib
import subprocess
import sys

GUIDE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/GUIDE.md"
HEADING = "| levels | processes are killed |"


def rows_of_guide():
    lines = iter(GUIDE.read_text().splitlines())
    for line in lines:
        if line.startswith(HEADING):
            break
    next(lines)  # the line below the heading
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append(line)
    return rows


def main():
    checked = subprocess.run([sys.argv[1], "promises"], check=True, text=True, stdout=subprocess.PIPE).stdout
    said = rows_of_guide()
    if checked.splitlines() == said:
        return 0
    print(f"{GUIDE} says\n" + "\n".join(said) + "\nand testing/sim/promises.cpp checks\n" + checked)
    return 1


if __name__ == "__main__":
    sys.exit(main())
