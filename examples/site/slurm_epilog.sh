#!/bin/sh
# An epilog for Slurm (EpilogSlurmctld is not meant, but Epilog=, which runs on each node): the sets that a job has left in
# its folder on this node's disk get into the user's store, and only then leave the disk.
#
#   SLURM_JOB_ID, SLURM_JOB_USER   set by Slurm
#   VARVE_SCRATCH                  the node's disk; the job's folder is $VARVE_SCRATCH/$SLURM_JOB_USER/$SLURM_JOB_ID (/nvme)
#   VARVE_SITE_STORE               the user's store is $VARVE_SITE_STORE/$SLURM_JOB_USER (/lustre/varve)
#   SLURM_JOB_NUM_NODES            1: the job had this node alone. Set it here if all jobs have: Slurm need not tell an epilog
#
# The files become sets of job-77 if it is known that the job had no other node, else of job-77-NODE: under one name, the
# ranks of the node that comes first would be taken for the whole set. To have one set of the files of all nodes, run a
# server (varve serve) and, in the job, a watcher on each node with --nodes N; for an epilog it is too late, as a node that
# has died has none.
#
# A failure of an epilog drains the node, so this one never fails: what could not be saved stays in the folder, and a
# message in the system's log.
folder=${VARVE_SCRATCH:-/nvme}/$SLURM_JOB_USER/$SLURM_JOB_ID
store=${VARVE_SITE_STORE:-/lustre/varve}/$SLURM_JOB_USER
[ -d "$folder" ] || exit 0

job=job-$SLURM_JOB_ID
[ "$SLURM_JOB_NUM_NODES" = 1 ] || job=$job-${SLURMD_NODENAME:-$(hostname -s)}

as_user() { runuser -u "$SLURM_JOB_USER" -- "$@"; }

if [ ! -e "$store/varve.store" ]; then
  as_user varve init "$store" || true
fi
# The job is over: a second without a change is enough.
if ! said=$(as_user varve watch "$folder" --to "$store" --job "$job" --quiet 1 --once --remove-originals 2>&1)
then
  logger -t varve-epilog "job $SLURM_JOB_ID: $said" 2>/dev/null || echo "$said" >&2
fi
rmdir "$folder" 2>/dev/null  # if nothing is left
exit 0
