#!/usr/bin/env bash
# Saves three consecutive sets of a small real sample, looks at them, restores one, and says what it gained.
# Needs `varve` in the PATH; `./run demo files` builds it and calls this.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/sample"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VARVE_STORE=$work/store

show() {
  printf '\n\033[1m$ %s\033[0m\n' "$*"
  "$@"
}
file_bytes() { find "$@" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
row() { awk -v what="$1" -v size="$2" -v all="$3" \
  'BEGIN { printf "  %-34s %12.0f   %5.2f times smaller\n", what, size, all / size }'; }

show varve init "$VARVE_STORE"
for set in implosion/DD0005 implosion/DD0006 implosion/DD0007; do
  show varve save "$set" --effort best
done
show varve list
show varve stat
show varve verify --deep
show varve restore implosion@6 "$work/restored"
show diff -r implosion/DD0006 "$work/restored"
echo "The restored set is identical to the saved one."

plain=$(file_bytes implosion)
gzip_bytes=0
zstd_bytes=0
for set in implosion/*; do
  gzip_bytes=$((gzip_bytes + $(tar -cf - "$set" | gzip -6 | wc -c)))
  ! command -v zstd >/dev/null || zstd_bytes=$((zstd_bytes + $(tar -cf - "$set" | zstd -q -3 | wc -c)))
done

printf '\nThree sets, in bytes:\n'
row "the folders" "$plain" "$plain"
row "tar | gzip -6" "$gzip_bytes" "$plain"
[ "$zstd_bytes" -eq 0 ] || row "tar | zstd -3" "$zstd_bytes" "$plain"
row "Varve" "$(file_bytes "$VARVE_STORE")" "$plain"
