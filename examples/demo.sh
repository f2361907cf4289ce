#!/usr/bin/env bash
# A flow solver on four ranks is killed without mercy, twice, and ends with the very state of a run that was not.
# demo.sh elastic: it is killed four times, and goes on with another number of ranks each time.
# Needs `lbm` and `varve` in the PATH; `./run demo` builds them and calls this. LBM_RANKS: how many ranks.
set -euo pipefail

ranks=${LBM_RANKS:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export VARVE_STORE=$work/store VARVE_JOB=cavity
launch=()
# on RANKS: how many the next runs have.
on() {
  ranks=$1
  command -v mpirun >/dev/null || return 0
  # For Open MPI, as variables, since other libraries do not know its options.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
  launch=(mpirun -n "$ranks")
}
on "$ranks"
flow=(lbm --cells 96,48,96 --steps 400 --every 50 --reynolds 400)

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# What a run printed, without what the launcher says of the dead.
printed() { grep -E '^(going on|checkpoint|steps|state|  |[a-z ]+:)' "$1" || true; }

# run_and_kill NAME STEP SECONDS: starts the solver, and kills all of it SECONDS after the checkpoint of STEP.
run_and_kill() {
  local log=$1.log
  "${launch[@]}" "${flow[@]}" --mode async >"$log" 2>"$1.err" &
  local launcher=$!
  until grep -qs "^checkpoint of step $2" "$log"; do
    kill -0 "$launcher" 2>/dev/null || { cat "$log" "$1.err" >&2; exit 1; }
    sleep 0.01
  done
  sleep "$3"
  kill -9 $(pgrep -P "$launcher") "$launcher" 2>/dev/null || true
  wait "$launcher" 2>/dev/null || true
  printed "$log"
  echo "  ... killed with kill -9, all $ranks ranks and their launcher"
}
state_of() { sed -n 's/^state after step [0-9]*: //p' "$1"; }

say "1. An uninterrupted run, without checkpoints"
"${launch[@]}" "${flow[@]}" --mode none | tee whole.log

# Killed between two checkpoints, and while one is being written.
on_as_many_ranks() {
  say "2. The same with a checkpoint every 50 steps, killed between two of them"
  run_and_kill first 150 0.4

  say "3. Run again, and killed while a checkpoint is being written"
  run_and_kill second 250 0

  say "4. Run again, to its end"
}

on_other_ranks() {
  command -v mpirun >/dev/null || { echo "this needs mpirun" >&2; exit 1; }
  local part=2 step=50 count
  for count in 4 3 7 1; do
    on "$count"
    say "$part. On $count ranks, with a checkpoint every 50 steps, and killed"
    run_and_kill "on-$count" "$step" 0.2
    part=$((part + 1)) step=$((step + 100))
  done
  on 5
  say "6. On 5 ranks, to its end"
}

case "${1:-}" in
  "") on_as_many_ranks ;;
  elastic) on_other_ranks ;;
  *) echo "no demonstration called $1" >&2; exit 2 ;;
esac
"${launch[@]}" "${flow[@]}" --mode async --picture flow.png | tee last.log

say "What is in the store"
varve list
varve verify

whole=$(state_of whole.log) last=$(state_of last.log)
say "The state at the end"
printf '  uninterrupted        %s\n  killed, and gone on  %s\n' "$whole" "$last"
if [ "$whole" != "$last" ]; then
  echo "They differ: this must not be. Please report it." >&2
  exit 1
fi
echo "  identical, bit by bit"
picture=$(ls flow.* | head -1)
if cp "$picture" "$OLDPWD/$picture" 2>/dev/null; then echo "  the flow: $OLDPWD/$picture"; fi
