"""Runs the program ``varve``, which reads foreign files in processes of its own, and tells what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from varve import _errors

#: Called with what is done ("saving"), how many bytes of it, and of how many.
ProgressCallback = Callable[[str, int, int], None]


def _program() -> str:
    """The program that was installed with this package, or the one that PATH has."""
    for folder in Path(__file__).resolve().parents:
        beside = folder / "bin" / "varve"
        if os.access(beside, os.X_OK):
            return str(beside)
    found = shutil.which("varve")
    if found is None:
        raise _errors.NotFound("the program varve is not there", "install it, or add its folder to PATH")
    return found


def run(
    command: str,
    options: Mapping[str, object],
    arguments: Sequence[str | os.PathLike[str]] = (),
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """What a command prints with --json. Raises what it says has failed; what it warns of is a varve.VarveWarning.
    ``options`` by their long names: those that are None or False are not said."""
    line = [_program(), command, "--json"]
    if progress is not None:
        line.append("--progress")
    for name, value in options.items():
        if value is None or value is False:
            continue
        line.append("--" + name.replace("_", "-"))
        if value is not True:
            line.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    line += ["--", *(os.fspath(argument) for argument in arguments)]
    failure: dict[str, str] | None = None
    words: list[str] = []
    printed: list[str] = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Beside this one, as the program may fill either pipe.
        reader = threading.Thread(target=lambda out=process.stdout: printed.append(out.read()), daemon=True)
        reader.start()
        try:
            for text in process.stderr:
                said = _said(text)
                if "progress" in said and progress is not None:
                    told = said["progress"]
                    progress(told["phase"], told["done_bytes"], told["total_bytes"])
                elif "warning" in said:
                    warnings.warn(_text(said["warning"]), _errors.VarveWarning, stacklevel=3)
                elif "error" in said:
                    failure = said["error"]
                else:
                    words.append(text)
            reader.join()
        except BaseException:
            process.terminate()  # it ends in good order
            process.stderr.read()
            raise
    if failure is not None:
        raise _errors.make(failure["code"], _text(failure), failure["hint"], failure["remedy"])
    if not "".join(printed).strip():
        raise _errors.Internal(f"varve ended with {process.returncode}: {''.join(words).strip()}")
    return cast("dict[str, Any]", json.loads("".join(printed)))


def _said(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _text(status: dict[str, str]) -> str:
    """As Status::to_string() puts it."""
    text = status["message"]
    if status["subject"]:
        text += f": {status['subject']}"
    if status["hint"]:
        text += f" ({status['hint']})"
    return text
