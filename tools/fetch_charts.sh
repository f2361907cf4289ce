#!/usr/bin/env bash
# Brings the charting library that `varve study` puts into its pages to build/charts: Apache ECharts (Apache-2.0) from the
# npm registry, at a fixed version whose bytes are known. Does nothing if it is there. Fails if it cannot be had; the
# program can be built without it.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

version=5.6.0
sha256=bf4a223524e40b77c304bec67e1222cf551f14880cf42c69dc046558e11c07b1  # of dist/echarts.min.js
folder=build/charts
file=$folder/echarts.min.js

is_right() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]; }

is_right "$file" && exit 0
if ! command -v npm >/dev/null; then
  echo "fetch_charts: no npm here, so there are no charts: varve study writes JSON and CSV, and no page" >&2
  exit 1
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
npm pack "echarts@$version" --silent --pack-destination "$work" >/dev/null
tar -xzf "$work/echarts-$version.tgz" -C "$work" package/dist/echarts.min.js package/LICENSE package/NOTICE
if ! is_right "$work/package/dist/echarts.min.js"; then
  echo "fetch_charts: echarts $version is not what it was: its sha256 differs" >&2
  exit 1
fi
mv "$work/package/LICENSE" "$folder/LICENSE"
mv "$work/package/NOTICE" "$folder/NOTICE"
mv "$work/package/dist/echarts.min.js" "$file"
