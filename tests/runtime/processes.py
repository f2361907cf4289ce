"""Processes that a test has started."""

import pathlib


def is_alive(pid):
    """Whether any thread of it is: what the process holds, it holds until the last one has gone."""
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            status = (thread / "stat").read_text()
        except OSError:
            continue
        if status.rpartition(")")[2].split()[0] not in "ZX":
            return True
    return False
