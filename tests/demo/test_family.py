from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from tiny_demo import TINY

from mergekit_map.demo.family import Family, train_family
from mergekit_map.utils.progress import notifying
from mergekit_map.workflows.callbacks import Callback


def stages(callback: Mock) -> list[str]:
    """List what was begun."""
    calls = (call.args for call in callback.on_stage.call_args_list)
    return [text for text, seconds in calls if seconds is None]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return train_family(tmp_path_factory.mktemp("cache") / "family", TINY)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_elsewhere_it_trains_to_the_same_bytes(family: Family, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    callback = Mock(spec=Callback)
    torch.manual_seed(12345)

    with notifying(callback):
        second = train_family(folder, TINY)

    assert stages(callback) == ["training base", "training code", "training math"]
    assert len(contents(family.folder)) >= 2 + 3 * 4
    assert contents(second.folder) == contents(family.folder)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_complete_family_is_used_again(family: Family) -> None:
    before = {path: path.stat().st_mtime_ns for path in family.folder.rglob("*")}
    callback = Mock(spec=Callback)

    with notifying(callback):
        again = train_family(family.folder, TINY)

    assert again == family
    assert stages(callback) == []
    after = {path: path.stat().st_mtime_ns for path in family.folder.rglob("*")}
    assert after == before


@pytest.mark.slow
def test_an_interrupted_training_leaves_nothing_behind(tmp_path: Path) -> None:
    stop = Mock(spec=Callback)
    stop.on_step.side_effect = KeyboardInterrupt("stop")

    with pytest.raises(KeyboardInterrupt, match="stop"), notifying(stop):
        train_family(tmp_path / "family", TINY)
    assert list(tmp_path.iterdir()) == []
