"""What ``inspect`` says of the search to come, how it shows it, and the probe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from inspect_seeds import (
    configure,
    cut_short,
    found,
    inspect,
    inspected,
    tuned,
)


def test_the_plan_counts_merges_memory_and_disk(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    config = configure(base, models, dtype="bfloat16", merge_method="ties")
    config["map"]["search"] = {"evaluations": 15, "remeasure": 4}
    other = {"python": "os:getcwd", "direction": "maximize"}
    config["map"]["tasks"]["own"] = other
    (tmp_path / "own.py").write_text("def f(model, tokenizer):\n    return 1.0\n")
    other["python"] = "own:f"

    plan = inspected(config)["plan"]

    assert (plan["searched"], plan["front"]) == (15, 5)
    assert plan["references"] == 1  # the soup, as no parts are dropped
    assert plan["measurements"] == plan["expected"] == 2 * (20 + 1)
    copy = 2 * 35680
    assert [room["n_bytes"] for room in plan["memory"]] == [copy]
    # The recordings are of the merge, and of base, parents and soup.
    assert sum(room["n_bytes"] for room in plan["disk"]) == (4 + 4 + 1) * copy
    assert "base and task vectors 571 kB, checkpoints 71.4 kB" in str(plan["disk"])
    config["map"]["task_vectors"] = "memory"
    assert inspected(config)["plan"]["memory"][0]["n_bytes"] == 4 * copy


def test_nested_checkpoints_are_counted(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcd")]
    config = configure(base, models, merge_method="ties")
    config["map"]["search"] = {"strategy": "nested", "remeasure": 4}

    plan = inspected(config)["plan"]

    # Base, soup and four models; then three pairs of 20 merges, and what is chosen of
    # the first two; then the front.
    assert plan["references"] == 6
    assert plan["searched"] == 3 * 20 + 2
    # The pair that does not own the only task is measured on it all the same.
    assert plan["measurements"] == plan["expected"] == 6 + 60 + 2 + 5
    copy = 4 * 35680
    # Two of the three pairs are kept, beside the chosen merge.
    recordings = (5 + 1) * copy * 2
    assert sum(room["n_bytes"] for room in plan["disk"]) == recordings + 3 * copy


def test_a_plan_that_does_not_fit_is_a_warning(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [str(tuned(base, tmp_path / "a", 1))]
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda _: shutil._ntuple_diskusage(10**6, 10**6, 100_000),
    )

    result = inspect(configure(base, models))

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "task vectors: in a memory-mapped file (285 kB, as fast" in text
    assert "warning: 571 kB" in text
    assert "Errors: 0, warnings: 1; a search can start" in text


def test_problems_of_the_file_and_of_models_are_told_together(
    base: Path, tmp_path: Path
) -> None:
    model = tuned(base, tmp_path / "a", 1)
    cut_short(model)
    config = configure(base, [str(model)])
    config["map"]["search"]["sed"] = 1

    content = inspected(config)

    assert found(content)["a"] == [("weights", "error")]
    assert "unknown key 'sed'" in str(content["problems"])
    assert content["plan"] is None


@pytest.mark.slow
def test_a_probe_times_a_merge_and_every_task(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    config = configure(base, models)

    content = inspected(config, "--probe")

    probe = content["probe"]
    assert probe["coefficients"] == {"a": 0.5, "b": 0.5}
    assert list(probe["task_seconds"]) == ["text"]
    plan = content["plan"]
    once = probe["merge_seconds"] + probe["task_seconds"]["text"]
    seconds = probe["load_seconds"] + 61 * once
    assert plan["searched"] + plan["front"] == 61
    assert probe["expected_hours"] == pytest.approx(seconds / 3600)
    assert probe["task_documents"]["text"] > 0
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    assert probe["peak_bytes"] == pytest.approx(1024 * int(peak), rel=0.05)
    assert "hours are less" not in inspect(config, "--probe").stdout
    config["map"]["search"]["hours"] = 1e-4
    assert "0.0001 hours are less than that." in inspect(config, "--probe").stdout
    assert not Path("run").exists()


def test_a_task_that_fails_in_a_probe_is_named(base: Path, tmp_path: Path) -> None:
    config = configure(base, [str(tuned(base, tmp_path / "a", 1))])
    (tmp_path / "failing.py").write_text(
        "def f(model, tokenizer):\n    raise RuntimeError('no grader')\n"
    )
    own = {"python": "failing:f", "direction": "maximize"}
    config["map"]["tasks"]["own"] = own

    result = inspect(config, "--probe")

    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "task 'own' cannot be measured at the soup" in message
    assert "no grader" in message


def test_the_plan_says_what_is_measured_on_all_documents(
    base: Path, tmp_path: Path
) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    config = configure(base, models)
    config["map"]["tasks"]["text"]["documents"] = 8
    config["map"]["search"] = {"hours": 2.5}

    plan = inspected(config)["plan"]

    # Base, soup and two models; five points of the front, and what is chosen.
    assert plan["whole"] == 4 + 6
    assert plan["documents"] == {"text": 8}
    assert plan["hours"] == 2.5
    assert plan["searched"] == 120
    assert "the others on 8 of text" in " ".join(inspect(config).stdout.split())
