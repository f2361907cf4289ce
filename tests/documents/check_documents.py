#!/usr/bin/env python3
"""Checks what the documents say about the tree: that ARCHITECTURE.md is short and up to date, and that links lead somewhere.

  tests/documents/check_documents.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
INTERNALS = ROOT / "docs/INTERNALS.md"
# What a newcomer reads in ten minutes.
ARCHITECTURE_LINES_MAX = 249
TOUCHED_FILES_MAX = 4
QUESTIONS = ["a codec", "a format reader", "the disk format", "a kind of level", "a scheme", "a command", "a wire message", "the commit",
             "the cost model", "a backend"]
SOURCE_FOLDERS = ("include", "src", "tools/varve", "testing", "bindings")


def documents():
    yield from ROOT.glob("*.md")
    yield from (ROOT / "docs").glob("*.md")


def rows_below(path, heading):
    """The cells of the rows of the table that begins with `heading`."""
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if line.startswith(heading):
            break
    next(lines, None)  # the line below the heading
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def code_words(text):
    return re.findall(r"`([^`]+)`", text)


def length_faults():
    count = len(ARCHITECTURE.read_text().splitlines())
    if count > ARCHITECTURE_LINES_MAX:
        yield f"ARCHITECTURE.md has {count} lines, and may have {ARCHITECTURE_LINES_MAX}: move details to docs/INTERNALS.md"


def question_faults():
    """Each question has a folder that exists, and few files, each of which exists: there, or from the root."""
    rows = rows_below(ARCHITECTURE, "| where is …")
    if [row[0] for row in rows] != QUESTIONS:
        yield f"ARCHITECTURE.md, \"Where is …\" answers {[row[0] for row in rows]}, and should answer {QUESTIONS}"
    for question, folder, files in rows:
        for name in code_words(folder):
            if not (ROOT / name).is_dir():
                yield f"ARCHITECTURE.md, \"Where is …\", {question}: no folder {name}"
        named = [name for name in code_words(files) if not name.startswith("./run ")]
        if len(named) > TOUCHED_FILES_MAX:
            yield f"ARCHITECTURE.md, \"Where is …\", {question}: more than {TOUCHED_FILES_MAX} files"
        for name in named:
            own = ROOT / code_words(folder)[0] / name
            if not own.exists() and not (ROOT / name).exists():
                yield f"ARCHITECTURE.md, \"Where is …\", {question}: no file {name}"


def layer_faults():
    """The layers are those of tools/check_layers.py."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "tools"))
    from check_layers import RANKS
    said = {}
    for rank, folder, _ in rows_below(ARCHITECTURE, "| rank |"):
        name = code_words(folder)[0]
        said[pathlib.PurePath(name).name] = int(rank)
        if not (ROOT / name).is_dir():
            yield f"ARCHITECTURE.md, \"Layers\": no folder {name}"
    if said != RANKS:
        differing = sorted(str(name) for name, _ in set(said.items()) ^ set(RANKS.items()))
        yield f"ARCHITECTURE.md, \"Layers\" and tools/check_layers.py differ in {differing}"


def invariant_faults():
    """Each invariant says what keeps it."""
    text = ARCHITECTURE.read_text().split("## Invariants")[1].split("\n## ")[0]
    listed = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    kept = [row[0] for row in rows_below(INTERNALS, "| | kept by |")]
    if listed != kept:
        yield f"ARCHITECTURE.md has the invariants {listed}, and docs/INTERNALS.md those that are kept: {kept}"


def anchors(path):
    for title in re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", title.lower())
        yield plain.replace(" ", "-")


def link_faults():
    for path in documents():
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists():
                yield f"{path.relative_to(ROOT)}: no {link}"
            elif anchor and anchor not in anchors(target):
                yield f"{path.relative_to(ROOT)}: no heading {link}"


def name_faults():
    """Functions that are named, as `call()` or `Class::call()`, are in the code, and so are files that are named."""
    text = "\n".join(path.read_text(errors="replace") for folder in SOURCE_FOLDERS
                     for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cpp", ".c"))
    words = set(re.findall(r"\w+", text))
    for path in (ARCHITECTURE, INTERNALS, ROOT / "docs/MEMORY.md"):
        for name in code_words(path.read_text()):
            if re.fullmatch(r"[\w:]+\(\)", name):
                missing = [word for word in re.findall(r"\w+", name) if word not in words]
                if missing:
                    yield f"{path.relative_to(ROOT)}: {name} is not in the code"
            elif re.fullmatch(r"(src|tools|tests|testing|bindings|include|docs|fuzz)/[\w./]*", name):
                if not (ROOT / name).exists():
                    yield f"{path.relative_to(ROOT)}: no {name}"


def main():
    faults = [fault for check in (length_faults, question_faults, layer_faults, invariant_faults, link_faults, name_faults)
              for fault in check()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
