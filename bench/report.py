"""Turns measurements into Markdown that also reads well on a terminal."""

import datetime
import os
import platform
import re
import shlex
import shutil
import subprocess

SECTION_BEGIN = "<!-- sets.py: begin (written by `./run bench --write`; do not edit by hand) -->"
SECTION_END = "<!-- sets.py: end -->"

# What the ratio is to gain over gzip -6 of the concatenated .cpu files: series, set, best effort, balanced effort.
ENZO_GAINS = (
    ("enzo_implosion_late", "", 0.21, 0.19),
    ("enzo_implosion", "DD0006", 0.54, 0.50),
    ("enzo_cosmology", "", 0.26, 0.24),
)


def enzo_gains(series, folder):
    """(best, balanced), or None where nothing is asked."""
    for series_begins, folder_begins, best, balanced in ENZO_GAINS:
        if series.startswith(series_begins):
            return (best, balanced) if folder.startswith(folder_begins) else None
    return None


def megabytes(size):
    return f"{size / 1e6:.2f}" if size < 100e6 else f"{size / 1e6:.0f}"


def percent(share):
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.1f} %"


def table(header, rows):
    """A Markdown table with aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [str(cell).ljust(width) if column == 0 else str(cell).rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("| " + " | ".join(cells) + " |")
    rule = "| " + " | ".join("-" * width if column == 0 else "-" * (width - 1) + ":"
                             for column, width in enumerate(widths)) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def results_table(results):
    header = ("tool", "stored MB", "on disk MB", "ratio", "save MB/s", "save CPU s", "save peak MB",
              "restore MB/s", "restore CPU s", "restore peak MB", "identical")
    rows = []
    for name, result in results.items():
        rows.append((name, megabytes(result.stored_bytes), megabytes(result.allocated_bytes),
                     f"{result.set_bytes / result.stored_bytes:.2f}",
                     f"{result.save_speed() / 1e6:.0f}", f"{result.save.cpu_seconds:.2f}",
                     f"{result.save.peak_bytes / 1e6:.0f}", f"{result.restore_speed() / 1e6:.0f}",
                     f"{result.restore.cpu_seconds:.2f}", f"{result.restore.peak_bytes / 1e6:.0f}",
                     "yes" if result.identical else "NO"))
    return table(header, rows)


def targets_table(targets):
    rows = [(target.what, target.wanted, target.measured, "met" if target.met else "NOT MET") for target in targets]
    return table(("to reach", "wanted", "measured", ""), rows)


def _said(*command):
    """The output of a command, or nothing where there is no such command."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _version(said):
    number = re.search(r"\d+(\.\d+)+", said)
    return number.group(0) if number else "of unknown version"


def machine(folder):
    model = re.search(r"Model name:\s*(.+)", _said("lscpu"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    file_system = _said("findmnt", "-n", "-o", "FSTYPE", "-T", str(folder)) or "unknown"
    versions = [f"{program} {_version(_said(program, option))}" for program, option in
                (("gzip", "--version"), ("pigz", "--version"), ("zstd", "--version"), ("restic", "version"),
                 ("borg", "--version")) if shutil.which(program)]
    return [f"machine: {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, "
            f"{memory / 2**30:.0f} GiB memory, Linux {platform.release()}, {file_system}",
            f"peers: {', '.join(versions)}"]


def document(bench, machine_lines, command):
    shown = shlex.join(["bench/sets.py", *command[1:]])
    today = datetime.date.today().isoformat()
    parts = ["\n".join(f"- {line}" for line in
                       [f"date: {today}", f"command: `{shown}`", *machine_lines,
                        f"runs: {bench.options.runs} (medians); MB = 10^6 bytes; peak memory of the largest process "
                        "(under about 20 MB it is that of the launching program)"])]
    parts += [series_section(heading, results) for heading, results in bench.tables]
    return "\n\n".join([*parts, closing_sections(bench)]) + "\n"


def series_section(heading, results):
    return f"### {heading}\n\n{results_table(results)}"


def closing_sections(bench):
    """What is to be reached, and what was left out."""
    parts = []
    if bench.targets:
        parts.append(f"### What is to be reached\n\n{targets_table(bench.targets)}")
    if bench.skipped:
        parts.append("### Skipped\n\n" + "\n".join(f"- {note}" for note in bench.skipped))
    return "\n\n".join(parts)


def write_marked(path, name, text):
    """Replaces what a Markdown file has between the marks of `name`; puts it at the end where there are none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    old = path.read_text() if path.exists() else "# Benchmarks\n"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    before, found, rest = old.partition(begin)
    if not found:
        path.write_text(f"{old.rstrip()}\n\n{section}")
        return
    after = rest.partition(end)[2].lstrip("\n")
    path.write_text(before + section + (f"\n{after}" if after else ""))


def write_section(path, text):
    """Replaces the measured section of a Markdown file, and makes the file where there is none."""
    section = f"{SECTION_BEGIN}\n\n{text}\n{SECTION_END}\n"
    old = path.read_text() if path.exists() else "# Benchmarks\n\n## Series of checkpoint sets\n\n" + SECTION_BEGIN
    begin, end = old.find(SECTION_BEGIN), old.find(SECTION_END)
    if begin < 0:
        new = old.rstrip() + "\n\n## Series of checkpoint sets\n\n" + section
    else:
        new = old[:begin] + section + (old[end + len(SECTION_END):].lstrip("\n") if end >= 0 else "")
    path.write_text(new)
