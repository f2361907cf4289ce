#!/usr/bin/env python3
"""Makes docs/COMMANDS.md of what the program's help says.

  tools/make_reference.py PATH/TO/varve > docs/COMMANDS.md
  tools/make_reference.py PATH/TO/varve --check     fails if the file says something else
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

REFERENCE = pathlib.Path(__file__).resolve().parent.parent / "docs/COMMANDS.md"
HEAD = """\
# Command reference

What `varve help` and `varve help COMMAND` print. `./run reference` makes this file, and a test checks that it is current.
[The guide](GUIDE.md#the-commands) explains the commands, with examples and their output.
"""


def help_of(program, *command):
    # Without an environment, so that nothing in it can matter.
    return subprocess.run([program, "help", *command], check=True, text=True, stdout=subprocess.PIPE, env={}).stdout


def commands_of(text):
    """The names under "Commands:" in the program's help."""
    names = re.findall(r"^  (\S+)", text.split("\nCommands:\n")[1].split("\n\n")[0], re.MULTILINE)
    return [name for name in names if name != "help"]


def link_lines(names, width=120):
    """Links to the commands, in lines that are not too long."""
    lines = [""]
    for name in names:
        link = f"[{name}](#{name})"
        if lines[-1] and len(lines[-1]) + len(" · ") + len(link) > width:
            lines[-1] += " ·"
            lines.append("")
        lines[-1] += (" · " if lines[-1] else "") + link
    return "\n".join(lines)


def reference_of(program):
    overview = help_of(program)
    texts = {"varve": overview, **{name: help_of(program, name) for name in commands_of(overview)}}
    sections = [f"## {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in texts.items()]
    return "\n".join([HEAD, link_lines(texts) + "\n", *sections])


def main():
    parser = argparse.ArgumentParser(description="Makes docs/COMMANDS.md of what the program's help says.")
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true", help="compare with the file that is there")
    arguments = parser.parse_args()
    wanted = reference_of(arguments.program)
    if not arguments.check:
        sys.stdout.write(wanted)
        return 0
    found = REFERENCE.read_text()
    if found == wanted:
        return 0
    sys.stderr.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), "docs/COMMANDS.md", "varve help"))
    print("docs/COMMANDS.md is not what the program's help says: ./run reference", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
