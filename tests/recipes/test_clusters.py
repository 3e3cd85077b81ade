"""Scripts for clusters are ones that bash reads, and say what the program accepts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from mergekit_map.cli.commands.search import search

FOLDER = Path(__file__).parents[2] / "recipes" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sh"))

FAKE = """
mergekit-map() { echo "mergekit-map $*"; }
exec() { "$@"; exit; }
srun() { shift; echo "srun $*" | tr -s ' \\n' ' '; echo; }
scontrol() { printf 'first\\nsecond\\n'; }
"""


def test_bash_reads_the_scripts_and_all_options_are_those_of_the_command() -> None:
    assert len(SCRIPTS) == 2
    for path in SCRIPTS:
        subprocess.run(["bash", "-n", str(path)], check=True, timeout=60)
    known = {name for option in search.params for name in option.opts}
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"mergekit-map search (.*)", text):
            assert set(re.findall(r"--[\w-]+", line)) <= known


def test_ray_is_started_with_a_token_that_goes_with_the_job(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "41234", "SLURM_JOB_NUM_NODES": "2"}
    slurm |= {"PATH": "/usr/bin:/bin", "SLURM_JOB_NODELIST": "n[1-2]"}
    watched = FOLDER / "slurm_ray.sh"
    text = watched.read_text(encoding="utf-8").replace(
        "srun bash", 'stat -c %a "$RAY_AUTH_TOKEN_PATH"\nsrun bash'
    )
    command = ["bash", "-c", FAKE + text, "slurm_ray.sh", "merge.yml", "my-search"]
    env = {"HOME": str(tmp_path), **slurm}
    said = subprocess.check_output(command, env=env, text=True, timeout=60)

    mode, started = said.split("\n", 1)
    assert mode == "600"
    assert "ray symmetric-run --address first:21234 --min-nodes 2" in started
    assert "mergekit-map search merge.yml my-search --workers ray" in started
    assert list((tmp_path / ".ray").iterdir()) == []
