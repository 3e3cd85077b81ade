#!/bin/bash
# One search on all GPUs of several nodes: Ray is started on each node, the search runs on
# the first one and gives merges to a worker per GPU, and Ray is stopped at the end.
#
#     sbatch slurm_ray.sh merge.yml RUN
#
# RUN, the models and $HOME must be on a file system that all nodes see. Ray listens on all
# interfaces of the nodes: only who has the token, a file that you alone can read, gets in.
#SBATCH --job-name=mergekit-map
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
config=${1:?a configuration} run=${2:?a run folder}

umask 077
mkdir -p "$HOME/.ray"
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH=$HOME/.ray/token-$SLURM_JOB_ID
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

export RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
start=(ray symmetric-run --address "$head:$((20000 + SLURM_JOB_ID % 10000))"
    --min-nodes "$SLURM_JOB_NUM_NODES")
search=(mergekit-map search "$config" "$run" --workers ray)
# Only the head, the first task, starts a dashboard: it is switched off.
srun bash -c 'dashboard=()
    if ((SLURM_PROCID == 0)); then dashboard=(--include-dashboard=false); fi
    n=$1; shift; exec "${@:1:n}" "${dashboard[@]}" -- "${@:n+1}"' \
    bash "${#start[@]}" "${start[@]}" "${search[@]}"
