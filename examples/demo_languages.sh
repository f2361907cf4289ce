#!/usr/bin/env bash
# Programs in Fortran and Python, and ones of VELOC and SCR, are killed with kill -9, and end with the state of a run that was
# not. Needs them and `varve` in the PATH, HEAT_PY as the command of the one in Python, and mpirun;
# `./run demo languages` builds them and calls this. DEMO_RANKS: how many ranks.
set -euo pipefail

ranks=${DEMO_RANKS:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
held() { sed -n 's/^ *after [0-9]* steps the [a-z]* holds *//p' "$1"; }

# kill_and_go_on TITLE STORE COMMAND...: STORE is where its sets come to lie.
kill_and_go_on() {
  local title=$1 store=$2 folder launcher
  shift 2
  say "$title"
  for folder in whole killed; do
    mkdir -p "$folder"
    (
      cd "$folder"
      mkdir -p memory persistent scratch
      printf 'scratch = scratch\npersistent = persistent\nmode = async\n' >veloc.cfg
      export VARVE_SHARED_MEMORY=$PWD/memory VARVE_EVERY_STEPS=100
      [ "$store" != store ] || export VARVE_STORE=$PWD/store  # VELOC and SCR say it in their own ways
      export SCR_PREFIX=$PWD/persistent SCR_CACHE_BASE=$PWD/scratch SCR_CHECKPOINT_INTERVAL=100 SCR_FLUSH=1
      if [ "$folder" = killed ]; then
        mpirun -n "$ranks" "$@" >first.log 2>&1 &
        launcher=$!
        until varve list --store "$store" >sets 2>/dev/null && [ "$(wc -l <sets)" -gt 1 ]; do
          kill -0 "$launcher" 2>/dev/null || { cat first.log >&2; echo "it ended before it could be killed" >&2; exit 1; }
          sleep 0.01
        done
        sleep 0.2
        kill -9 $(pgrep -P "$launcher") "$launcher" 2>/dev/null || true
        wait "$launcher" 2>/dev/null || true
        echo "  ... killed with kill -9, all $ranks ranks and their launcher; run again:"
      fi
      mpirun -n "$ranks" "$@" | tee last.log | sed 's/^/  /'
      [ "$folder" = whole ] || varve list --store "$store" | tail -n 2 | sed 's/^/  /'
    )
  done
  if [ "$(held whole/last.log)" != "$(held killed/last.log)" ] || [ -z "$(held whole/last.log)" ]; then
    echo "They differ: this must not be. Please report it." >&2
    exit 1
  fi
  echo "  identical, bit by bit, to the run that was left alone"
  rm -rf whole killed
}

kill_and_go_on "Fortran: examples/heat/heat.f90" store heat_f 2000 768 768
# shellcheck disable=SC2086 - a command of several words
kill_and_go_on "Python: examples/heat/heat.py" store $HEAT_PY 2000 768 768
kill_and_go_on "VELOC: examples/peers/rod_veloc.c, as it was written" persistent/varve rod_veloc veloc.cfg 10000
kill_and_go_on "SCR: examples/peers/rod_scr.c, as it was written" persistent/varve rod_scr 10000
