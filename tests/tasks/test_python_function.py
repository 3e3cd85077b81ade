import importlib
import math
import pickle
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from task_files import Bench

from mergekit_map.config.tasks import PythonTask
from mergekit_map.errors import EvaluationError, InvalidTask, MergeError
from mergekit_map.tasks.python_function import (
    PythonFunction,
    load_function,
    weight_checksum,
)
from mergekit_map.types import Measure, Measurement

numbers = count()


def load(folder: Path, code: str, **options: Any) -> PythonFunction:
    module = f"own_score_{next(numbers)}"  # Python imports a name once a process
    (folder / f"{module}.py").write_text(code)
    keys = {"python": f"{module}:score", "direction": "maximize", **options}
    return load_function("mine", PythonTask.model_validate(keys), folder)


def prepare(bench: Bench, returned: str, **options: Any) -> Measure:
    code = f"import math\nimport torch\ndef score(model, tokenizer):\n {returned}\n"
    return bench.prepare(load(bench.folder, code, **options))


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("return 0.5", Measurement(0.5, None, 1)),
        ("return 0.5, 0.1", Measurement(0.5, 0.1, 1)),
        ("return 0.5, None", Measurement(0.5, None, 1)),
        ("return 0.5, math.nan", Measurement(0.5, None, 1)),
        ("return math.inf", Measurement(math.inf, None, 1)),
        ("return torch.tensor(0.5)", Measurement(0.5, None, 1)),
    ],
)
def test_returns_a_number_with_or_without_standard_error(
    bench: Bench, returned: str, expected: Measurement
) -> None:
    assert prepare(bench, returned)() == expected


def test_draws_are_the_same_each_time_and_not_missed_elsewhere(bench: Bench) -> None:
    run = prepare(bench, "return torch.rand(1).item()")
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    drawn = [torch.rand(1), run(), torch.rand(1), run()]

    assert drawn[1] == drawn[3]
    assert torch.equal(torch.cat([drawn[0], drawn[2]]), expected)


NO_NUMBERS = ["None", "'a'", "torch.ones(1, 1)", "[]", "[1, 'a']", "1, 2, 3"]
NO_NUMBERS += ["1, -2", "None, 1"]
HARMS = ["lm_head.weight[0, 0] += 1e-3", "lm_head.weight.data.neg_()", "half()"]
HARMS += ["resize_token_embeddings(500)", "lm_head = torch.nn.Identity()"]
HARMS += ["model.rotary_emb.bfloat16()"]  # which is not among the weights


def test_an_edited_function_is_the_one_that_is_called(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = PythonTask(python="own_edited:score", direction="minimize")
    places = [(bench.folder, 1), (bench.folder, 22), (tmp_path / "other", 333)]
    values = []
    for place, value in places:
        place.mkdir(exist_ok=True)
        (place / "of_edited.py").write_text(f"VALUE = {value}\n")
        code = "def score(model, tokenizer):\n    return VALUE\n"
        (place / "own_edited.py").write_text(f"from of_edited import VALUE\n{code}")
        monkeypatch.syspath_prepend(place)
        # Someone tried these in the same process, the second one before an edit.
        importlib.import_module("of_edited")
        sys.modules.pop("own_edited", None)
        values.append(bench.prepare(load_function("mine", spec, place))().value)

    assert values == [1, 22, 333]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise torch.OutOfMemoryError('full')", "full; lower batch_size"),
        ("raise ArithmeticError('no luck')", r"'mine' on .* ArithmeticError: no luck"),
        ("return 50", r"lie in \[0.0, 1.0\], got 50.*'range:'"),
        *((f"return {x}", r"task 'mine' .* must return a number") for x in NO_NUMBERS),
        *((f"model.{x}; return 1", r"'mine'.*changed the w.*copy") for x in HARMS),
    ],
)
def test_a_function_that_fails_or_harms_has_no_value(
    bench: Bench, code: str, message: str
) -> None:
    run = prepare(bench, code, range=[0, 1])

    with pytest.raises(EvaluationError, match=message):
        run()


def test_where_a_function_works_and_how_it_generates_is_its_own(bench: Bench) -> None:
    code = "import os; os.chdir('/'); model.generation_config.max_new_tokens = 3"
    known, before = bench.model.generation_config.max_new_tokens, Path.cwd()

    assert prepare(bench, f"{code}; return 1")().value == 1
    assert Path.cwd() == before
    assert bench.model.generation_config.max_new_tokens == known != 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (3,), (64, 96)])
def test_a_checksum_sees_every_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    module = torch.nn.Module()
    content = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    module.weight = torch.nn.Parameter(content, requires_grad=False)
    known, bits = weight_checksum(module), content.view(-1).view(integers)

    for place in range(0, len(bits), 1 + len(bits) // 20):
        bits[place] ^= 1
        assert weight_checksum(module) != known
        bits[place] ^= 1
    assert weight_checksum(module) == known


def test_a_function_may_use_gradients_modes_and_its_tokenizer(bench: Bench) -> None:
    code = (
        "tokenizer.padding_side = 'left'; model.train()\n"
        " with torch.enable_grad():\n"
        "  embedded = torch.ones(1, 3, 32, requires_grad=True)\n"
        "  model(inputs_embeds=embedded).logits.sum().backward()\n"
        " return float(embedded.grad.abs().sum())"
    )

    assert prepare(bench, code)().value > 0

    assert not bench.model.training
    assert bench.tokenizer.padding_side == "right"


def test_the_folder_comes_last_on_the_path_after_importing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own_helper.py").write_text("VALUE = 3\n")
    (folder / "own_late.py").write_text("VALUE = 4\n")
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", [*before])
    late = "    import own_late\n    return own_late.VALUE\n"

    task = load(folder, f"import own_helper\ndef score(model, tokenizer):\n{late}")

    assert task.function(None, None) == 4
    assert sys.path == [*before, str(folder.resolve())]


@pytest.mark.parametrize(
    "files",
    [
        {"own_task.py": "HALF = 1 / 2"},
        {"own_task.py": "import functools\n@functools.cache"},
        {"own_task.py": "from own_other import K", "own_other.py": "K = 1"},
        {"own_task.py": "import own_pack.deep", "own_pack/deep.py": "K = 1"},
        {"own_parts/own_task.py": "", "own_parts/__init__.py": "K = 1"},
        {"own_a/b/own_task.py": "", "own_a/b/__init__.py": "", "own_a/__init__.py": ""},
        {
            "own_lib/own_task.py": "from . import (\n    one,  # (first)\n    two,\n)",
            "own_lib/one.py": "K = 1",
            "own_lib/two.py": "K = 1",
        },
        {
            "own_task.py": "def late():\n    import own_one",
            "own_one.py": "from own_two import *",
            "own_two.py": "import own_one  # in a circle",
        },
    ],
)
def test_the_fingerprint_changes_with_the_file_and_what_it_imports_beside_it(
    folder: Path, files: dict[str, str]
) -> None:
    for name, code in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{code}\ndef score(model, tokenizer): return 1\n")
    module = next(iter(files)).removesuffix(".py").replace("/", ".")
    spec = PythonTask(python=f"{module}:score", direction="maximize")
    task = load_function("mine", spec, folder)
    before, sent = task.fingerprint, pickle.dumps(task)  # to a worker
    assert load_function("mine", spec, folder).fingerprint == before
    with (folder / list(files)[-1]).open("a") as file:
        file.write("K = 2\n")

    assert load_function("mine", spec, folder).fingerprint != before
    with pytest.raises(MergeError, match="the code of task 'mine' changed"):
        pickle.loads(sent)


def test_two_functions_of_one_module_reach_a_worker(folder: Path) -> None:
    code = "def first(model, tokenizer): return 1\ndef second(*both): return 2\n"
    (folder / "of_two.py").write_text(code)
    names = ("first", "second")
    specs = {n: PythonTask(python=f"of_two:{n}", direction="maximize") for n in names}
    loaded = [load_function(name, spec, folder) for name, spec in specs.items()]

    sent = pickle.loads(pickle.dumps(loaded))

    assert [task.function(None, None) for task in sent] == [1, 2]
    assert [task.fingerprint for task in sent] == [o.fingerprint for o in loaded]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def scor(model, tokenizer): pass", "no function 'score'.*'scor'"),
        ("score = 3", "has no function 'score'"),
        ("def score(model): pass", r"called with \(model, tokenizer\), which"),
        ("import nothing_there", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_says_what_is_wrong_with_the_function(
    folder: Path, code: str, message: str
) -> None:
    with pytest.raises(InvalidTask, match=message) as caught:
        load(folder, code)
    sent = pickle.loads(pickle.dumps(caught.value))  # by a worker
    assert sent.key == caught.value.key == ("python",)
    assert str(sent) == str(caught.value)
