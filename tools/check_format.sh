#!/usr/bin/env bash
# Every C++ file has the form that .clang-format gives it. `--fix` gives it to them.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

mode=(--dry-run -Werror)
[ "${1:-}" = --fix ] && mode=(-i)

folders=()
for folder in include src bindings examples testing tests fuzz bench tools; do
  [ -d "$folder" ] && folders+=("$folder")
done
find "${folders[@]}" -type f \( -name '*.h' -o -name '*.c' -o -name '*.cpp' \) -print0 |
  xargs -0 --no-run-if-empty clang-format "${mode[@]}"
