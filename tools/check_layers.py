#!/usr/bin/env python3
"""Checks that the source keeps its layers.

A file in src/ or tools/varve/ includes only from its own folder and from folders of a strictly lower rank, never from a
sibling of the same rank. A unit test (*_test.cpp, beside the code it tests) may also include from siblings and from
tests/. Headers of other projects that would spread (<mpi.h>, <hdf5.h>, ...) are included only in the few files named
below.

The library knows no command line: no text in src/ or include/ names a command or an option of `varve`. What a user can
do about a failure is a varve::Remedy, which the command line says in its own words (tools/varve/cli/remedies.cpp).

    tools/check_layers.py               checks this repository
    tools/check_layers.py --self-test   checks the checker against a tree with known faults
"""

import argparse
import fnmatch
import pathlib
import re
import sys
import tempfile

RANKS = {
    "varve": 0, "core": 0,
    "hash": 1, "codec": 1, "comm": 1, "layout": 1, "s3": 1,
    "chunk": 2, "format": 2,
    "backend": 3, "snapshot": 3,
    "store": 4,
    "engine": 5, "redundancy": 5,
    "service": 6,
    "reader": 7,
    "level": 8,
    "runtime": 9,
    "monitor": 10, "serve": 10, "mount": 10, "watch": 10, "study": 10,
    "report": 11,
    "cli": 12,
}

# Which files may include a header of another project. Tests, fuzzers and benchmarks are free, as they ship in nothing.
CONFINED = {
    "mpi.h": ["src/comm/mpi_*.cpp", "include/varve/mpi.h", "include/varve/varve_mpi.h", "bindings/peers/*", "examples/*"],
    "hdf5.h": ["src/layout/hdf5_*.cpp", "src/layout/hdf5_library.h", "tools/varve/cli/hdf5_file.cpp"],
    "fuse*.h": ["tools/varve/mount/fuse_*.cpp"],
    "archive*.h": ["tools/varve/cli/tar_output.cpp"],
    "dlfcn.h": ["src/core/loaded_library.cpp"],
    "microhttpd.h": ["tools/varve/monitor/metrics_server.cpp"],
    "zstd*.h": ["src/codec/zstd_*.cpp"],
    "lz4*.h": ["src/codec/lz4_*.cpp"],
    "lzma.h": ["src/codec/lzma_*.cpp"],
    "libdeflate.h": ["src/codec/gzip_*.cpp"],
    "blake3.h": ["src/hash/*.cpp"],
    "openssl/*": ["src/hash/*.cpp", "src/core/unique_id.cpp", "src/service/tcp_tls.cpp", "src/s3/s3_sign.cpp"],
    "curl/*": ["src/s3/http.cpp"],
    "expat.h": ["src/s3/s3_xml.cpp"],
    "isa-l*": ["src/hash/*.cpp", "src/redundancy/erasure_code.cpp"],
    "hwloc.h": ["src/runtime/placement.cpp"],
    "toml++/*": ["src/runtime/settings.cpp"],
    "CLI/*": ["tools/varve/cli/*"],
    "png.h": ["tools/varve/report/heat_map_png.cpp", "examples/*"],
}

# Of other programs, the library may name commands and options.
OTHER_COMMANDS = re.compile(r"\b(?:aws|docker) [\w -]+")
COMMAND_LINE = re.compile(r"`varve [a-z]|--[a-z]")
TEXT_OR_COMMENT = re.compile(
    r'''//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)'|R"\((?P<raw>.*?)\)"|"(?P<text>(?:[^"\\\n]|\\.)*)"''', re.DOTALL)

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
FREE_FOLDERS = ("tests", "fuzz", "bench")
PUBLIC_ONLY_FOLDERS = ("examples", "bindings")


def source_files(root):
    for folder in ("include", "src", "tools/varve", "bindings", "examples", "tests", "fuzz", "bench"):
        if (root / folder).is_dir():
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in SOURCE_SUFFIXES and path.is_file():
                    yield path.relative_to(root)


def includes(path):
    """Yields (line number, name, in quotes) of each include in a file."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) or match.group(2), match.group(1) is not None


def is_test(path):
    return path.parts[0] in FREE_FOLDERS or path.stem.endswith("_test")


def confinement_fault(path, name):
    if is_test(path):
        return None
    for header, allowed in CONFINED.items():
        if fnmatch.fnmatch(name, header) and not any(fnmatch.fnmatch(str(path), pattern) for pattern in allowed):
            return f"<{name}> belongs in {' or '.join(allowed)} only"
    return None


def src_fault(root, path, name):
    """Why a file of src/ may not include "name", or None."""
    own = path.parent.name
    if own not in RANKS:
        return f"{path.parent} has no rank: give it one in tools/check_layers.py"
    folder = name.split("/")[0]
    if folder == own:
        return None
    if folder not in RANKS:
        if is_test(path) and (root / "tests" / name).is_file():
            return None
        return f'"{name}" is not in a layer: name files from src/, as in "core/bytes.h"'
    rank_max = RANKS[own] if is_test(path) else RANKS[own] - 1
    # The public headers are below everything, core included.
    if folder == "varve" or RANKS[folder] <= rank_max:
        return None
    return f'{own} (rank {RANKS[own]}) must not include "{name}" (rank {RANKS[folder]})'


def fault(root, path, name, in_quotes):
    confined = confinement_fault(path, name)
    if confined:
        return confined
    ours = in_quotes or name.startswith("varve/")
    if not ours or path.parts[0] in FREE_FOLDERS:
        return None
    if path.parts[0] in ("src", "tools"):
        return src_fault(root, path, name)
    if name.startswith("varve/"):
        return None
    if path.parts[0] in PUBLIC_ONLY_FOLDERS and (root / path.parent / name).is_file():
        return None
    return f'"{name}": only the public headers (varve/...) can be seen from here'


def texts(path):
    """Yields (line number, text) of each string in a file."""
    source = path.read_text(errors="replace")
    for match in TEXT_OR_COMMENT.finditer(source):
        if text := match.group("raw") or match.group("text"):
            yield source.count("\n", 0, match.start()) + 1, text


def command_line_faults(root, path):
    if path.parts[0] not in ("src", "include") or is_test(path):
        return
    for number, text in texts(root / path):
        named = COMMAND_LINE.search(OTHER_COMMANDS.sub("", text))
        if named:
            yield f"{path}:{number}: \"{named.group()}...\" is a command line's word: give a Remedy (varve/status.h)"


def check(root):
    """Returns the faults of a tree, one line each."""
    faults = []
    for path in source_files(root):
        for number, name, in_quotes in includes(root / path):
            why = fault(root, path, name, in_quotes)
            if why:
                faults.append(f"{path}:{number}: {why}")
        faults.extend(command_line_faults(root, path))
    return faults


SELF_TEST_GOOD = {
    "include/varve/status.h": "#include <string>\n",
    "src/core/bytes.h": '#include "varve/status.h"\n',
    "src/format/arena.cpp": '#include "format/arena.h"\n#include "codec/codec.h"\n#include "core/bytes.h"\n',
    "src/store/arena_test.cpp": '#include "chunk/chunker.h"\n#include "zoo/zoo.h"\n#include <hdf5.h>\n',
    "src/layout/hdf5_layout.cpp": "#include <hdf5.h>\n",
    "tests/zoo/zoo.h": '#include "store/store.h"\n#include <hdf5.h>\n',
    "examples/heat.cpp": "#include <varve/status.h>\n",
    "src/engine/save.cpp": "f('\"', \"tcp://\"); // --step, \"`varve drop`\"\n/* \"--step\" */ g(\"--\");\n",
    "src/snapshot/snapshot.cpp": 'f("make it larger (docker run --shm-size)");\n',
    "src/engine/save_test.cpp": 'f("give --step");\n',
    "tools/varve/cli/remedies.cpp": 'f("give --step");\n',
}
SELF_TEST_BAD = {
    "include/varve/session.h": '#include "core/bytes.h"\n',
    "src/core/file.cpp": '#include "hash/score.h"\n',
    "src/format/pack.cpp": '#include "chunk/chunker.h"\n',
    "src/chunk/fixed.cpp": '#  include "chunker.h"\n',
    "src/store/store.cpp": '#include "cli/table.h"\n',
    "src/store/store_test.cpp": '#include "engine/save.h"\n',
    "src/layout/layout.cpp": "#include <hdf5.h>\n",
    "src/format/tree.cpp": "#include <openssl/evp.h>\n",
    "src/cellar/wine.cpp": '#include "core/bytes.h"\n',
    "examples/wave.cpp": '#include "core/bytes.h"\n',
    "src/engine/restore.cpp": 'f("https://a", "give --step");\n',
    "src/engine/drop.cpp": 'f(R"(run `varve drop`)");\n',
    "include/varve/mpi.h": 'f("docker run --x, \\"--step\\"");\n',
}


def self_test():
    """Every bad file gives one fault, and no good one does."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**SELF_TEST_GOOD, **SELF_TEST_BAD}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = sorted(line.split(":")[0] for line in check(root))
    if found != sorted(SELF_TEST_BAD):
        missed = sorted(set(SELF_TEST_BAD) - set(found))
        invented = sorted(set(found) - set(SELF_TEST_BAD))
        return [f"self-test: missed {missed}, invented {invented}, found {len(found)} faults"]
    return []


def main():
    parser = argparse.ArgumentParser(description="Checks that the source keeps its layers.")
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    root = pathlib.Path(__file__).resolve().parent.parent
    faults = self_test() if parser.parse_args().self_test else check(root)
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
