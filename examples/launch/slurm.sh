#!/bin/bash
# Trains on 2 machines with 8 GPUs each, with one process for each GPU (torch or JAX):
#
#   sbatch examples/launch/slurm.sh --config scratch/small --dataset folder:/shared/photos \
#       --workdir /shared/runs/photos
#
# All machines must see the data and --workdir. Five minutes before its time ends, the job writes a
# checkpoint and queues again, and then goes on from it.
#SBATCH --job-name=vit_keras
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

export KERAS_BACKEND="${KERAS_BACKEND:-torch}"
nodes="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
export MASTER_ADDR="${nodes%%$'\n'*}"
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export WORLD_SIZE="$SLURM_NTASKS"

# On SLURM, JAX takes the GPU of its task's number alone, and torch the one of LOCAL_RANK.
code=0
srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec "$@"' task \
    python -m vit_keras train --distribution multi_worker "$@" || code=$?
if [ "$code" = 143 ]; then # SIGTERM, after a checkpoint
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
