"""Scripts for clusters are ones that bash reads, and say what the program accepts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from mergekit_map.commands.search import search

FOLDER = Path(__file__).parents[2] / "recipes" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sh"))

FAKE = """
mergekit-map() { echo "mergekit-map $*"; }
sbatch() { echo "sbatch $*"; }
exec() { "$@"; exit; }
srun() { shift; echo "srun $*" | tr -s ' \\n' ' '; echo; }
scontrol() { printf 'first\\nsecond\\n'; }
"""


def said(script: str, tmp_path: Path, *words: str, **environment: str) -> list[str]:
    """Run a script where commands only say what they are asked."""
    text = FAKE + (FOLDER / script).read_text(encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", text, script, "merge.yml", "my-search", *words],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environment},
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_bash_reads_it(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=60)


def test_all_options_are_those_of_the_command() -> None:
    assert len(SCRIPTS) == 3
    known = {name for option in search.params for name in option.opts}
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"mergekit-map search (.*)", text):
            named = set(re.findall(r"--[\w-]+", line))
            assert named <= known
    assert isinstance(search, click.Command)


def test_tasks_of_an_array_are_shards_and_the_first_one_orders_the_joining(
    tmp_path: Path,
) -> None:
    slurm = {
        "SLURM_ARRAY_JOB_ID": "77",
        "SLURM_ARRAY_TASK_MIN": "0",
        "SLURM_ARRAY_TASK_COUNT": "8",
        "SLURM_CPUS_PER_TASK": "4",
    }

    first = said("slurm_array.sh", tmp_path, SLURM_ARRAY_TASK_ID="0", **slurm)
    last = said("slurm_array.sh", tmp_path, SLURM_ARRAY_TASK_ID="7", **slurm)
    join = said("slurm_array.sh", tmp_path, "join", **slurm)

    joining = "sbatch --dependency=afterany:77 --array=1 slurm_array.sh merge.yml"
    assert first == [
        f"{joining} my-search join",
        "mergekit-map search merge.yml my-search --shard 1/8",
    ]
    assert last == ["mergekit-map search merge.yml my-search --shard 8/8"]
    assert join == ["mergekit-map search merge.yml my-search"]


def test_ray_is_started_with_a_token_that_goes_with_the_job(tmp_path: Path) -> None:
    slurm = {
        "SLURM_JOB_ID": "41234",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    watched = FOLDER / "slurm_ray.sh"
    text = watched.read_text(encoding="utf-8").replace(
        "srun bash", 'stat -c %a "$RAY_AUTH_TOKEN_PATH"\nsrun bash'
    )
    done = subprocess.run(
        ["bash", "-c", FAKE + text, "slurm_ray.sh", "merge.yml", "my-search"],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **slurm},
        text=True,
        timeout=60,
    )

    mode, started = done.stdout.split("\n", 1)
    assert mode == "600"
    assert "ray symmetric-run --address first:21234 --min-nodes 2" in started
    assert "mergekit-map search merge.yml my-search --workers ray" in started
    assert list((tmp_path / ".ray").iterdir()) == []


def test_the_job_of_kubernetes_has_a_shard_for_each_pod() -> None:
    job = yaml.safe_load((FOLDER / "kubernetes.yml").read_text(encoding="utf-8"))

    pods = job["spec"]["completions"]
    assert pods == job["spec"]["parallelism"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][0].endswith(f'"$((JOB_COMPLETION_INDEX + 1))/{pods}"')
