"""The demo from its command, on a family that it trains; .ci/run has the whole one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from runs import invoke

from mergekit_map import gains
from mergekit_map.demo.corpus import CorpusSizes
from mergekit_map.demo.family import FamilySizes
from mergekit_map.demo.training import ModelSizes
from mergekit_map.results.run_folder import RunFolder

WHOLE = FamilySizes()
# Shorter windows, fewer steps: less good models, of which the same holds.
SMALL = replace(
    WHOLE,
    corpus=CorpusSizes(code_characters=600_000, math_pages=200, held_out_math_pages=20),
    model=ModelSizes(vocabulary=512, positions=64),
    base=replace(WHOLE.base, steps=150),
    code=replace(WHOLE.code, steps=80),
    math=replace(WHOLE.math, steps=60),
    tokenizer_documents=100,
    held_out_characters=15_000,
)


@pytest.mark.slow
def test_the_demo_ends_with_a_merge_that_beats_the_base_and_the_soup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo"
    monkeypatch.setattr("mergekit_map.demo.family.FamilySizes", lambda: SMALL)

    result = invoke("demo", "--out", str(out))

    found = gains(RunFolder(out / "run").read_front())
    assert {*found.sources.values()} == {"measured"}
    for rival in ("base", "soup"):
        assert found.where(rival, "better")
        assert not found.where(rival, "worse")
    assert (out / "merged" / "model.safetensors").exists()
    assert len(yaml.safe_load((out / "demo.yml").read_text())["map"]["tasks"]) == 2
    assert len(result.stdout.splitlines()) <= 40
    assert result.stdout.count("gain kept") == 1
    assert f"mergekit-map push {out}/merged YOU/NAME" in result.stdout
