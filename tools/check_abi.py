"""Checks that a shared library shows the names that a list has, and no others.

    tools/check_abi.py LIST LIBRARY             what has changed; ends with 1 if anything has
    tools/check_abi.py --update LIST LIBRARY    adds new names to the list

A name that is gone breaks programs that were linked before: it comes back, or the library gets another SOVERSION
(VARVE_ABI in cmake/VarveShared.cmake) and the list loses it by hand.
"""

import pathlib
import subprocess
import sys


def shown_names(library):
    """As "name@@VERSION"; the versions' own names and what is for Varve alone are left out."""
    said = subprocess.run(["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = (line.split()[-1] for line in said.splitlines())
    return {name for name in names if "@@" in name and not name.endswith("@@VARVE_PRIVATE")}


def readable(names):
    said = subprocess.run(["c++filt"], input="\n".join(sorted(names)), check=True, stdout=subprocess.PIPE, text=True).stdout
    return "".join(f"  {line}\n" for line in said.splitlines())


def main(arguments):
    update = "--update" in arguments
    paths = [argument for argument in arguments if argument != "--update"]
    if len(paths) != 2:
        sys.exit(__doc__)
    listed_in, library = pathlib.Path(paths[0]), paths[1]
    listed = set(listed_in.read_text().split()) if listed_in.exists() else set()
    shown = shown_names(library)
    if not shown:
        sys.exit(f"{library} shows nothing")
    gone, new = listed - shown, shown - listed
    if update:
        listed_in.write_text("".join(f"{name}\n" for name in sorted(listed | shown)))
        new = set()
    if gone:
        print(f"{library} does not show any more:\n{readable(gone)}", end="")
    if new:
        print(f"{library} shows what {listed_in} does not have (tools/check_abi.py --update adds it):\n{readable(new)}", end="")
    return 1 if gone or new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
