#!/bin/bash
# A job that may be preempted, and goes on where it was. sbatch job.sh
#
#SBATCH --job-name=flow
#SBATCH --nodes=4 --ntasks-per-node=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# No --signal: Slurm says by SIGTERM that it takes the nodes back, and `varve run` knows when the time is over.

# exec, so that Slurm gets the exit code: 75 means that there is work left (RequeueExit= in slurm.conf).
# --grace: what slurm.conf leaves between SIGTERM and SIGKILL (KillWait=, or GraceTime= of the partition).
exec varve run --job flow --grace 90s \
  --levels "memory; local:/nvme/$USER/varve keep=2; dir:/lustre/$USER/varve every=10" \
  -- srun ./solver
