#!/usr/bin/env python3
"""What each chunker and chunk size stores of the real series, and what the saves cost: the table behind the default.

    bench/chunkers.py --varve build/varve --data DIR [DIR...] [--write docs/BENCHMARKS.md]

Each DIR holds one folder a job, with one folder a set in it; files that end in .zst are unpacked first. Only Python's standard library is used.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHUNKERS = ["fixed:1024", "fixed:2048", "fixed:4096", "fixed:8192", "fixed:16384", "fixed:65536", "gear:4096", "gear:8192", "gear:65536",
            "rabin:8192"]
MARK = "chunkers"


def series_of(data: Path) -> dict[str, list[Path]]:
    jobs = {}
    for job in sorted(data.iterdir()):
        folders = [job, *sorted(p for p in job.rglob("*") if p.is_dir())]
        sets = [p for p in folders if any(f.is_file() for f in p.iterdir())] if job.is_dir() else []
        sets = [p for p in sets if p != job]
        if sets:
            jobs[job.name] = sets
    return jobs


def plain(folder: Path, copy: Path) -> Path:
    """The folder, or a copy of it with its compressed files unpacked."""
    if not any(f.suffix == ".zst" for f in folder.rglob("*")):
        return folder
    copy.mkdir(parents=True)
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        if file.suffix == ".zst":
            subprocess.run(["zstd", "-q", "-d", "--long=27", file, "-o", copy / file.stem], check=True)
        else:
            shutil.copy2(file, copy)
    return copy


def measure(varve: Path, sets: list[Path], chunker: str, effort: str) -> tuple[int, float]:
    work = Path(tempfile.mkdtemp(prefix="varve-chunkers-"))
    try:
        store = work / "store"
        subprocess.run([varve, "init", store], check=True, stdout=subprocess.DEVNULL)
        before = os.times()
        for step, folder in enumerate(sets):
            subprocess.run([varve, "save", folder, "--store", store, "--job", "job", "--step", str(step), "--chunker", chunker, "--effort",
                            effort], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        stored = sum(f.stat().st_size for part in ("arenas", "sets") for f in (store / part).rglob("*") if f.is_file())
        return stored, after.children_user - before.children_user + after.children_system - before.children_system
    finally:
        shutil.rmtree(work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=Path, default=Path("build/varve"))
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--write", type=Path, help="put the table into this Markdown file")
    options = parser.parse_args()
    unpacked = Path(tempfile.mkdtemp(prefix="varve-chunkers-data-"))
    jobs = {}
    for data in options.data:
        jobs |= {job: [plain(s, unpacked / job / s.name) for s in sets] for job, sets in series_of(data).items()}
    raw = {job: sum(f.stat().st_size for s in sets for f in s.rglob("*") if f.is_file()) for job, sets in jobs.items()}
    lines = ["| stored MB (ratio) | " + " | ".join(jobs) + " | all | CPU s |", "| --- |" + " ---: |" * (len(jobs) + 2)]
    for chunker in CHUNKERS:
        cells, total, seconds = [], 0, 0.0
        for job, sets in jobs.items():
            stored, cpu = measure(options.varve, sets, chunker, options.effort)
            cells.append(f"{stored / 1e6:.2f} ({raw[job] / stored:.2f})")
            total += stored
            seconds += cpu
        lines.append(f"| {chunker} | " + " | ".join(cells) + f" | {total / 1e6:.2f} ({sum(raw.values()) / total:.3f}) | {seconds:.2f} |")
        print(lines[-1], file=sys.stderr)
    table = "\n".join(lines)
    print(table)
    shutil.rmtree(unpacked)
    if options.write:
        begin, end = f"<!-- {MARK}: begin -->", f"<!-- {MARK}: end -->"
        text = options.write.read_text() if options.write.exists() else ""
        block = (f"{begin}\n## Chunkers and chunk sizes\n\nEach series into a store of its own, effort {options.effort}, {time.strftime('%Y-%m-%d')}: "
                 f"`bench/chunkers.py --data DIR...`\n\n{table}\n{end}\n")
        if begin in text:
            text = text[:text.index(begin)] + block + text[text.index(end) + len(end) + 1:]
        else:
            text += "\n" + block
        options.write.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
