#!/bin/bash
# Trains on a TPU pod, with one JAX process on each of its machines:
#
#   gcloud compute tpus tpu-vm ssh NAME --zone ZONE --worker all --command \
#       "bash vit_keras/examples/launch/tpu_worker.sh --config pretrain/jft_l16 --shard_state \
#       --dataset shards:gs://bucket/train-*.tar --workdir /mnt/shared/runs/jft"
#
# All machines must see --workdir. The same command continues a run that was stopped.
set -euo pipefail

attribute() {
    curl --fail --silent --show-error --header 'Metadata-Flavor: Google' \
        "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

workers="$(attribute worker-network-endpoints)" # host,host,... or name:number:address,...
separators="${workers//[^,]/}"
first="${workers%%,*}"
RANK="$(attribute agent-worker-number)"
export RANK
export WORLD_SIZE=$((${#separators} + 1))
export MASTER_ADDR="${first##*:}"
export MASTER_PORT="${MASTER_PORT:-8475}"
export KERAS_BACKEND=jax
exec python3 -m vit_keras train --distribution auto "$@"
