#!/bin/bash
# One search shared among the tasks of a Slurm array, a GPU each. No server: they read each
# other's logs in RUN, which must be on a file system that all nodes see.
#
#     sbatch slurm_array.sh merge.yml RUN
#
# The last job writes the front, when all tasks have ended. Tasks that were killed, or never
# started, cost nothing but time: what they lack is measured by the others, or by that job.
#SBATCH --job-name=mergekit-map
#SBATCH --array=1-8
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --output=%x-%A-%a.out
set -euo pipefail
config=${1:?a configuration} run=${2:?a run folder}

if [[ ${3-} == join ]]; then
    exec mergekit-map search "$config" "$run"
fi
if ((SLURM_ARRAY_TASK_ID == SLURM_ARRAY_TASK_MIN)); then
    sbatch --dependency="afterany:$SLURM_ARRAY_JOB_ID" --array=1 "$0" "$config" "$run" join
fi
number=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN + 1))
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
exec mergekit-map search "$config" "$run" --shard "$number/$SLURM_ARRAY_TASK_COUNT"
