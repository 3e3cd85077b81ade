#!/bin/bash
# One search on the eight GPUs of one machine: a process for each, the models recorded once.
#
#     bash eight_gpus.sh merge.yml RUN
set -euo pipefail
config=${1:?a configuration} run=${2:?a run folder}

mergekit-map inspect "$config" --probe
exec mergekit-map search "$config" "$run" --workers 8
