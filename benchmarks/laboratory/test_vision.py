"""The smallest families of images: built, built again, searched, and refitted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import vision_family
import yaml
from click.testing import CliRunner
from family import Family, configuration, load
from safetensors.torch import load_file
from vision_images import SOURCES, draw_images
from vision_models import Size, resnet18

from mergekit_map.cli import main
from mergekit_map.demo.training import Schedule

SMALL = Size(
    features=64,
    layers=1,
    base=Schedule(120, 4e-3, 0.02, batch=64),
    fine_tune=Schedule(50, 1.5e-3, 5e-3, batch=48),
    images=600,
    held_out=240,
    refit=300,
)
TASKS = {"vision": ("textures", "directions"), "resnet": ("signs", "digits")}


@pytest.fixture(scope="module")
def small_plans() -> Iterator[None]:
    """Let families have two fine-tunes, and bases learn two tasks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, tasks in TASKS.items():
            base = TASKS["vision"]
            plan = dataclasses.replace(
                vision_family.PLANS[name], base=base, models=tasks
            )
            patch.setitem(vision_family.PLANS, name, plan)
        yield


@pytest.fixture(scope="module")
def vision(small_plans: None, tmp_path_factory: pytest.TempPathFactory) -> Family:  # noqa: ARG001
    root = tmp_path_factory.mktemp("vision")
    return load(vision_family.build("vision", root, "small", SMALL))


@pytest.fixture(scope="module")
def resnet(small_plans: None, tmp_path_factory: pytest.TempPathFactory) -> Family:  # noqa: ARG001
    root = tmp_path_factory.mktemp("resnet")
    return load(vision_family.build("resnet", root, "small", SMALL))


def test_images_are_of_all_classes_and_none_is_held_out_and_trained() -> None:
    for task, source in SOURCES.items():
        count = 2 * len(source.classes)
        train = draw_images(task, count, held_out=False)
        again = draw_images(task, count, held_out=False)
        held_out = draw_images(task, count, held_out=True)

        assert torch.bincount(train.labels).tolist() == [2] * len(source.classes)
        assert train.pixels.shape == (count, 3, 32, 32)
        assert torch.equal(train.pixels, again.pixels)
        assert torch.equal(train.labels, again.labels)
        seen = {image.numpy().tobytes() for image in train.pixels}
        assert len(seen) == count
        assert not seen & {image.numpy().tobytes() for image in held_out.pixels}


def test_what_is_lost_is_made_again_with_the_same_bytes(
    vision: Family, tmp_path: Path
) -> None:
    folder = vision_family.build("vision", tmp_path, "small", SMALL)
    first = digests(folder)
    assert first == digests(vision.folder)
    base = (folder / "base" / "model.safetensors").stat().st_mtime_ns
    os.remove(folder / "directions" / "model.safetensors")
    (folder / "directions").rename(folder / "lost")
    os.remove(folder / "family.json")

    vision_family.build("vision", tmp_path, "small", SMALL)

    assert digests(folder) == first
    assert (folder / "base" / "model.safetensors").stat().st_mtime_ns == base


def test_a_folder_of_other_sizes_is_refused(vision: Family, tmp_path: Path) -> None:
    folder = tmp_path / "vision-small"
    folder.mkdir()
    record = (vision.folder / "build.json").read_text()
    (folder / "build.json").write_text(record)

    with pytest.raises(SystemExit, match="begun with other sizes"):
        vision_family.build(
            "vision", tmp_path, "small", dataclasses.replace(SMALL, layers=2)
        )


@pytest.mark.parametrize("name", TASKS)
def test_a_search_measures_what_the_manifest_says(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    family: Family = request.getfixturevalue(name)
    names = [model.name for model in family.models]
    content = configuration(family, names, "images", evaluations=9, remeasure=1)
    config, out = tmp_path / "config.yml", tmp_path / "out"
    config.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    result = CliRunner().invoke(main, ["search", str(config), str(out), "--quiet"])

    assert result.exit_code == 0, result.output
    front = json.loads((out / "front.json").read_text(encoding="utf-8"))
    anchors = {anchor["label"]: anchor["measured"] for anchor in front["anchors"]}
    accuracies = family.facts["accuracies"]
    for label in ("base", *names):
        found = [anchors[label][f"{task}_accuracy"]["value"] for task in names]
        assert found == pytest.approx(accuracies[label], abs=1e-4)
    for column, task in enumerate(names):
        assert accuracies[task][column] > accuracies["base"][column]
        assert 0 < family.facts["norm_ratios"][task] < 0.3


def test_a_refitted_base_is_as_good_as_with_a_head_of_its_own(resnet: Family) -> None:
    data = load_file(resnet.folder / "images" / "signs.safetensors")
    model = resnet18.HeadlessResNet.from_pretrained(resnet.base)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    module, _, task = resnet.task("signs_accuracy").block["python"].partition(":")
    right = vars(__import__(module))[task]

    with torch.no_grad():
        found = right(model, None)
        some = right(model, None, documents=[3, 1])
        with resnet18.fresh_statistics(model, data["train_pixels"]):
            inputs = resnet18.features(model, data["train_pixels"])
            head = resnet18.fit_head(inputs, data["train_labels"], 16)
            features = resnet18.features(model, data["pixels"])

    expected = head.classify(features) == data["labels"]
    assert found == expected.double().tolist()
    assert some == [found[3], found[1]]
    # Statistics and weights are as they were, and the head has learnt something.
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert np.mean(found) > 2 / 16


def digests(folder: Path) -> dict[str, str]:
    """Hash every file but what says how long it took."""
    skipped = {"family.json", "build.json", ".lock"}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in skipped
        and not {"__pycache__", "lost"} & set(path.relative_to(folder).parts)
    }
