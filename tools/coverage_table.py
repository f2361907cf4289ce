#!/usr/bin/env python3
"""Lines and branches that tests ran, by folder, as a Markdown table: of what `gcovr --json-summary` says.

    tools/coverage_table.py build/coverage/summary.json
"""

import argparse
import collections
import json
import pathlib

KINDS = ("line", "branch")


def folder_of(path: str) -> str:
    """src/level, bindings/c, tools/varve/cli; bindings/python/varve and all below count there."""
    parts = pathlib.PurePosixPath(path).parts[:-1]
    return "/".join(parts[:3] if parts[0] == "tools" else parts[:2])


def percent(covered: int, total: int) -> str:
    return f"{100 * covered / total:.1f}" if total else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summary", type=pathlib.Path)
    files = json.loads(parser.parse_args().summary.read_text())["files"]
    sums: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for file in files:
        for key in (folder_of(file["filename"]), "all"):
            for kind in KINDS:
                for what in ("covered", "total"):
                    sums[key][f"{kind}_{what}"] += file[f"{kind}_{what}"]
    print("| folder | lines | of them run, % | branches taken, % |")
    print("| --- | --- | --- | --- |")
    for folder in sorted(sums, key=lambda name: (name == "all", name)):
        of = sums[folder]
        print(f"| {folder} | {of['line_total']} | {percent(of['line_covered'], of['line_total'])} | "
              f"{percent(of['branch_covered'], of['branch_total'])} |")


if __name__ == "__main__":
    main()
