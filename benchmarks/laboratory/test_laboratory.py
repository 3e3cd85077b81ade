"""The smallest families, from manual pages made up here and from Python's own text."""

import dataclasses
import gzip
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from describing import check
from domains import LANGUAGES, Sources, read_domain
from family import configuration, load
from logic import split_expressions
from measuring import measure
from sizes import Size
from text_family import PLANS, Plan, build_text_family

from mergekit_map.demo.training import ModelSizes, Schedule

SMALL = Size(
    ModelSizes(
        vocabulary=400, hidden=32, intermediate=64, layers=1, heads=2, positions=64
    ),
    base=Schedule(20, 8e-3, 0.02, batch=4),
    fine_tune=Schedule(40, 3e-4, 6e-4, batch=16),
    adapter=Schedule(60, 1e-3, 3e-3, batch=16),
    characters=110_000,
    questions=100,
    largest_operand=20,
    measured_tokens=512,
    rank=8,
)
LABORATORY = Path(__file__).parent


@pytest.fixture(scope="module")
def manpages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("man"))


def write_pages(root: Path) -> Path:
    """Write manual pages in two languages, whose words come mostly in one order."""
    for name in ("german", "french"):
        rng = np.random.default_rng([*name.encode()])
        folder = root / LANGUAGES[name] / "man1"
        folder.mkdir(parents=True)
        syllables = ["".join(pair) for pair in itertools.product("bdgklmnrst", "aeiou")]
        rng.shuffle(syllables)
        words = [a + b for a, b in zip(syllables[::2], syllables[1::2], strict=True)]
        for page in range(50):
            steps = rng.choice([1, 7], p=[0.6, 0.4], size=(60, 9)).cumsum(axis=1)
            order = (steps + rng.integers(len(words), size=(60, 1))) % len(words)
            lines = [" ".join(words[index] for index in row) for row in order]
            text = "\n.TH PAGE 1\n.SH NAME\n" + "\n".join(lines) + "\n"
            data = gzip.compress(text.encode(), mtime=0)
            (folder / f"page{page}.1.gz").write_bytes(data)
    return root


@pytest.fixture(scope="module", autouse=True)
def _small_plans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mixed", "lora"):
            small = Plan(("german", "french"), PLANS[name].adapters_of)
            patch.setitem(PLANS, name, small)
        yield


@pytest.fixture(scope="module")
def mixed(manpages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("families")
    return build_text_family("mixed", root, "small", SMALL, [manpages])


def contents(folder: Path) -> dict[str, bytes]:
    """Read what does not say where or when it was made."""
    files = [*folder.glob("*/*"), *folder.glob("*.jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def start(root: Path, manpages: Path) -> subprocess.Popen[bytes]:
    """Begin to build the family in a process of its own."""
    code = (
        "from pathlib import Path; import test_laboratory as t\n"
        "t.PLANS['mixed'] = t.Plan(('german', 'french'))\n"
        f"t.build_text_family('mixed', Path({str(root)!r}), 'small', t.SMALL, "
        f"[Path({str(manpages)!r})])"
    )
    path = os.pathsep.join([str(LABORATORY), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def test_each_fine_tune_gains_on_its_own_tasks(mixed: Path) -> None:
    family = load(mixed)

    facts = family.facts
    assert [model.name for model in family.models] == ["german", "french"]
    for own, name in enumerate(("german", "french")):
        assert facts["losses"][name][own] < facts["losses"]["base"][own] - 0.1
        before, after = facts["own"][name][f"{name}_choice"]
        assert before < after
        assert 0.01 < facts["norm_ratios"][name] < 0.1


@pytest.mark.slow
def test_a_killed_build_goes_on_and_ends_in_the_same_bytes(
    mixed: Path, manpages: Path, tmp_path: Path
) -> None:
    folder = tmp_path / mixed.name
    process = start(tmp_path, manpages)
    while not (folder / "base").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (folder / "french").exists()
    trained = (folder / "base" / "model.safetensors").stat().st_mtime_ns

    build_text_family("mixed", tmp_path, "small", SMALL, [manpages])

    assert (folder / "base" / "model.safetensors").stat().st_mtime_ns == trained
    assert contents(folder) == contents(mixed)


def test_other_sizes_do_not_go_on_with_what_is_there(
    mixed: Path, manpages: Path, tmp_path: Path
) -> None:
    shutil.copytree(mixed, tmp_path / mixed.name)
    (tmp_path / mixed.name / "family.json").unlink()
    longer = dataclasses.replace(SMALL, base=Schedule(30, 8e-3, 0.02, batch=4))

    with pytest.raises(SystemExit, match="base was trained by other sizes"):
        build_text_family("mixed", tmp_path, "small", longer, [manpages])


def test_adapters_are_of_the_base_of_the_mixed_family(
    mixed: Path, manpages: Path
) -> None:
    folder = build_text_family("lora", mixed.parent, "small", SMALL, [manpages])

    family = load(folder)
    weights = "base/model.safetensors"
    assert (folder / weights).read_bytes() == (mixed / weights).read_bytes()
    assert (folder / "german" / "adapter_model.safetensors").exists()
    content = configuration(family, ["german"], "loss")
    assert content["models"] == [{"model": f"{folder}/base+{folder}/german"}]
    (losses,) = measure(content, np.array([[1.0]]))
    assert losses[0] == pytest.approx(family.facts["losses"]["german"][0], abs=1e-4)


def test_answers_are_generated_and_a_fine_tune_without_gain_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLANS, "mixed", Plan(("arithmetic", "logic")))
    still = Schedule(1, 1e-6, 1e-6, batch=1)
    size = dataclasses.replace(SMALL, base=still, fine_tune=still, questions=10)

    with pytest.raises(SystemExit, match=r"logic gains 0\.000 nats on its own text"):
        build_text_family("mixed", tmp_path, "small", size, [])

    facts = json.loads((tmp_path / "mixed-small" / "refused.json").read_text())
    kinds = [task["kind"] for task in facts["tasks"]]
    assert kinds == ["loss", "choice", "generated"] * 2
    assert facts["own"]["arithmetic"]["arithmetic_generated"] == [0.0, 0.0]
    with pytest.raises(SystemExit, match="holds no finished family"):
        load(tmp_path / "mixed-small")


def test_a_family_that_goes_far_is_refused(mixed: Path) -> None:
    facts = {**load(mixed).facts, "norm_ratios": {"german": 0.01, "french": 0.2}}

    with pytest.raises(SystemExit, match=r"vector of french has 20\.0% of the base's"):
        check(mixed, facts)


def test_a_moved_family_is_measured_where_it_is(mixed: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(mixed, tmp_path / "moved")

    family = load(moved)

    content = configuration(family, ["french"], "choice", evaluations=3)
    assert content["map"]["search"] == {"seed": 0, "evaluations": 3}
    (row,) = measure(content, np.array([[0.0]]))
    assert row[0] == pytest.approx(family.facts["own"]["french"]["french_choice"][0])
    task = Path(content["map"]["tasks"]["french_choice"]["lm_eval"])
    assert str(moved) in task.read_text()
    assert str(mixed) not in task.read_text()


def test_unknown_names_are_refused_with_those_that_are_known(mixed: Path) -> None:
    family = load(mixed)

    with pytest.raises(KeyError, match="'dutch' is none of german, french"):
        configuration(family, ["dutch"], ["german_loss"])
    with pytest.raises(ValueError, match="has no task of kind 'generated'"):
        configuration(family, ["german"], "generated")


def test_a_language_without_pages_is_read_from_message_catalogues(
    tmp_path: Path,
) -> None:
    sources = Sources((tmp_path / "man",), characters=110_000, largest_operand=9)
    with pytest.raises(SystemExit, match="install Debian's manpages-pl"):
        read_domain("polish", sources)
    folder = tmp_path / "locale" / "pl" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    messages = [f"wiadomość numer {n}, która jest dość długa" for n in range(3_000)]
    write_catalogue(folder / "program.mo", messages)

    domain = read_domain("polish", sources)

    lines = "".join([*domain.text.train, *domain.text.held_out]).splitlines()
    assert len(lines) > 2_000
    assert set(lines) <= set(messages)
    assert len(set(lines)) == len(lines)


def test_half_of_the_held_out_expressions_are_true() -> None:
    train, held_out = split_expressions(np.random.default_rng(0))

    assert sum(one.value for one in held_out) * 2 == len(held_out) >= 2_000
    assert not {one.words for one in train} & {one.words for one in held_out}
    words = {"yes": "True", "on": "True", "no": "False", "off": "False"}
    words |= {"true": "True", "false": "False"}
    for one in held_out[:200]:
        python = " ".join(words.get(word, word) for word in one.words.split())
        assert eval(python) == one.value
        assert one.question.choices[one.question.answer] == f" {one.value}".lower()


def write_catalogue(path: Path, messages: list[str]) -> None:
    """Write messages as gettext reads them, each the translation of its number."""
    numbers = sorted(range(len(messages)), key=str)
    keys = [b"", *(str(number).encode() for number in numbers)]
    head = "Content-Type: text/plain; charset=UTF-8\n"
    texts = [text.encode() for text in (head, *(messages[n] for n in numbers))]
    count = len(keys)
    header = 28
    at = header + 16 * count
    tables, data = [], b""
    for strings in (keys, texts):
        for string in strings:
            tables += [len(string), at + len(data)]
            data += string + b"\0"
    first = (0x950412DE, 0, count, header, header + 8 * count, 0, 0)
    path.write_bytes(struct.pack(f"<7I{len(tables)}I", *first, *tables) + data)
