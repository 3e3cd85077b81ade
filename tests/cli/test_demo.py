"""The demo from its command, on the family that it trains."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest
import yaml

from mergekit_map import gains
from mergekit_map.cli.main import main
from mergekit_map.results.run_folder import RunFolder


@pytest.mark.slow
def test_the_demo_ends_with_a_merge_that_beats_the_base_and_the_soup(
    tmp_path: Path,
) -> None:
    out = tmp_path / "demo"

    result = click.testing.CliRunner().invoke(main, ["demo", "--out", str(out)])

    assert result.exit_code == 0, result.output
    found = gains(RunFolder(out / "run").read_front())
    assert {*found.sources.values()} == {"measured"}
    for rival in ("base", "soup"):
        assert found.where(rival, "better")
        assert not found.where(rival, "worse")
    assert len(yaml.safe_load((out / "demo.yml").read_text())["map"]["tasks"]) == 2
    assert len(result.stdout.splitlines()) <= 40
    assert result.stdout.count("gain kept") == 1
    assert f"mergekit-map push {out}/merged YOU/NAME" in result.stdout
