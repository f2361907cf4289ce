#!/bin/sh
# An epilog for Slurm (Epilog=, which runs on each node): what a job that was killed has left in the node's memory, or in
# the node's own store, is brought to the next level, so that it outlives the node. The job need not start again for that.
#
#   SLURM_JOB_USER   set by Slurm
#   VARVE_WAIT       how long to wait for the parts of the job's other nodes (30s)
#
# With job_container/tmpfs, /dev/shm of a job is gone before its epilog: have it keep /dev/shm, or set VARVE_SHARED_MEMORY
# for the jobs and here to a memory file system that outlives them.
#
# A failure of an epilog drains the node in Slurm's own sense, so this one never fails: what could not be brought along
# stays where it is, and a message in the system's log. It is brought along by the next job, or by the next drain.
[ -n "$SLURM_JOB_USER" ] || exit 0
if ! said=$(runuser -u "$SLURM_JOB_USER" -- varve drain --wait "${VARVE_WAIT:-30s}" 2>&1); then
  logger -t varve-epilog "job $SLURM_JOB_ID: $said" 2>/dev/null || echo "$said" >&2
fi
exit 0
