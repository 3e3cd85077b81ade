"""Files of models that strangers made: damaged, hostile, or of something else.

Each is tried through ``inspect`` and ``search``. What no model can be is refused, with
the name of the file or tensor; what may be a model is merged or refused with words.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from attack import Attack, Limits, command, shown
from damages import BYTES, NOT_WRONG, PLACES, Change, bent, of_bytes, put, rewritten
from safetensors.torch import load_file, save_file
from tiny_models import copied, read_tensors, searched, write_tensors

MODELS = ("base", "a")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TENSOR = "model.layers.0.mlp.down_proj.weight"  # (32, 64)
N = 32 * 64 * 4  # bytes of it
MARK = "code-was-run"  # what hostile code writes
EVIL = f"import pathlib\npathlib.Path({MARK!r}).touch()\n"
NAN, INF = math.nan, math.inf
Tensors = dict[str, torch.Tensor]


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (EVIL,)


@dataclass(frozen=True)
class Damage:
    """What is done to a file of a model, and what has to be said of it."""

    name: str
    file: str  # nothing: the folder
    change: Change
    words: tuple[str, ...] = ()
    harmless: bool = False  # it may be merged
    models: tuple[str, ...] = MODELS  # to one after the other


def attacks(_: int) -> Iterator[Attack]:
    """Yield every damage of every file of every model."""
    for damage in itertools.chain(
        _headers(), _tensors(), _indices(), _configurations(), _adapters(),
        _code(), _folders(),
    ):  # fmt: skip
        for model in damage.models:
            attempt = functools.partial(_try, damage, model)
            yield Attack(f"{model}: {damage.name}", attempt)


def _try(damage: Damage, model: str, folder: Path) -> str:
    """Return what is wrong with how a damaged model is met."""
    copied(folder)
    damage.change(folder / model / damage.file)
    config = "adapted.yml" if model == "adapter" else "merge.yml"
    problems, code = searched(folder, config, damage.words, harmless=damage.harmless)
    if code == 0 and not problems:
        merged = command(["merge", "run", "out", "--trust-run"], folder, Limits(30))
        if merged.code:
            problems.append(f"merge, after a search that went well: {merged.said}")
    if (folder / MARK).exists():
        problems.append("code of the model was run")
    return "; ".join(problems)


def _whole(
    file: str,
    *words: str,
    harmless: bool = False,
    spared: Container[str] = NOT_WRONG,
    **more: Any,
) -> Iterator[Damage]:
    """Damage the bytes of a file, and put something else in its place."""
    for way, change in BYTES.items():
        fine = harmless or way in spared
        said = () if fine else words
        yield Damage(f"{file}: {way}", file, change, said, fine, **more)
    for way, change in PLACES.items():
        yield Damage(f"{file} is {way}", file, change, (), harmless, **more)


_ENTRY: dict[str, list[Any]] = {
    "data_offsets": [
        *([-8, N - 8], [N, 0], [0, 2**63], [2**62, 2**62 + N], [0, INF], [NAN, N]),
        *([0.5, N + 0.5], ["0", str(N)], [0, N, N], [0], [], None, {"0": N}, [0, 0]),
    ],
    "shape": [
        *([-32, -64], [10**9, 10**9], [32.5, 64], ["32", "64"], [True, 2048], None),
        *(2048, [INF, 64], [1] * 1000 + [32, 64], [64, 32], [2048], [0, 64], []),
    ],
    "dtype": ["F33", "F64", "", None, 32, ["F32"], {"F32": 1}, "C64", "\x1b[31mF32"],
}
_METADATA: list[Any] = [["pt"], 7, "pt", None, {"format": 1}, {"format": ["pt"]}]
_NAMES = [
    *("", "a\nb", "\x1b[2Jx", "a\0b", "\ud800", "x" * 2**20, "../../../etc/passwd"),
    "[red]x[/red]<script>alert(1)</script>",
]
_ENTRY_OF_NOTHING = b'{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}'
_HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "a list": lambda _: b"[]",
    "cut short": lambda h: h[:-5],
    "deeply nested": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "bytes that are no text": lambda h: h.replace(b"mlp", b"\xff\xfe\xff"),
    "a byte order mark": lambda h: b"\xef\xbb\xbf" + h,
    "a tensor twice": lambda h: h[:-1] + b', "lm_head.weight": ' + _ENTRY_OF_NOTHING,
    "of 5000 digits": lambda _: b'{"a": {"shape": [' + b"9" * 5000 + b"]}}",
    "empty": lambda _: b"{}",
    "something behind it": lambda h: h + b"x",
}
_LENGTHS = (0, 1, 7, 10**8 + 1, 2**32, 2**63, 2**64 - 1)


def _headers() -> Iterator[Damage]:
    for key, values in _ENTRY.items():
        for value in values:
            change = bent(lambda h, k=key, v=value: h[TENSOR].update({k: v}))
            yield Damage(f"{key} {shown(value)}", WEIGHTS, change)
        change = bent(lambda h, k=key: h[TENSOR].pop(k))
        yield Damage(f"a tensor without {key}", WEIGHTS, change, (WEIGHTS,))
    for value in _METADATA:
        name, change = f"metadata {shown(value)}", _with("__metadata__", value)
        yield Damage(name, WEIGHTS, change, (WEIGHTS,), value is None)
    for new in _NAMES:
        change = bent(lambda h, n=new: h.update({n: h.pop(TENSOR)}))
        yield Damage(f"a tensor's name {shown(new)}", WEIGHTS, change)
    for name, make in _HEADERS.items():
        yield Damage(f"a header {name}", WEIGHTS, _with_header(make), (WEIGHTS,))
    padded = _with_header(lambda h: b"  " + h + b" " * 64)
    yield Damage("spaces around the header", WEIGHTS, padded, harmless=True)
    for n in _LENGTHS:
        change = of_bytes(lambda d, n=n: n.to_bytes(8, "little") + d[8:])
        yield Damage(f"a header of {n} bytes", WEIGHTS, change, (WEIGHTS,))
    yield from _whole(WEIGHTS, WEIGHTS, spared=())


def _with(key: str, value: Any) -> Change:
    return bent(lambda content: content.update({key: value}))


def _without(key: str) -> Change:
    return bent(lambda content: content.pop(key, None))


def _with_header(make: Callable[[bytes], bytes]) -> Change:
    def change(path: Path) -> None:
        header, data = read_tensors(path)
        write_tensors(path, make(json.dumps(header).encode()), data)

    return change


_EMBEDDINGS = "model.embed_tokens.weight"
# What may not stand in the place of a matrix of a model, or of an adapter.
_SHAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of fewer rows": lambda x: x[:2],
    "of no rows": lambda x: x[:0],
    "of fewer columns": lambda x: x[:, :2],
    "that is a vector": lambda x: x[0],
    "that is a number": lambda _: torch.tensor(1.0),
    "with another axis": lambda x: x[None],
}
_TENSORS: dict[str, Callable[[Tensors], Any]] = {
    "without a matrix": lambda t: t.pop(TENSOR),
    "without embeddings": lambda t: t.pop(_EMBEDDINGS),
    "without a layer": lambda t: [t.pop(n) for n in list(t) if ".1." in n],
    "without anything": lambda t: t.clear(),
}


def _replaced(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return rewritten(lambda of: of.update({name: make(of[name]).clone()}))


def _tensors() -> Iterator[Damage]:
    """Tensors that lie on one another, that lack, or that nobody asked for."""
    other = TENSOR.replace("layers.0", "layers.1")
    overlap = bent(lambda header: header.update({TENSOR: header[other]}))
    yield Damage("tensors that overlap", WEIGHTS, overlap, (WEIGHTS,))
    yield Damage("tensors that have a hole between", WEIGHTS, _hole, (WEIGHTS,))
    for name, bend in _TENSORS.items():
        yield Damage(f"weights {name}", WEIGHTS, rewritten(bend))
    matrices = (TENSOR, _EMBEDDINGS)
    for tensor, (way, make) in itertools.product(matrices, _SHAPES.items()):
        yield Damage(f"{tensor} {way}", WEIGHTS, _replaced(tensor, make))
    more = rewritten(lambda t: t.update(extra=torch.ones(3)))
    yield Damage("a tensor nobody asked for", WEIGHTS, more, harmless=True)
    for value in (NAN, INF, -INF):
        for what, bend in {
            "one weight": lambda t, v=value: t[TENSOR][7, 7].fill_(v),
            "every weight": lambda t, v=value: [x.fill_(v) for x in t.values()],
        }.items():
            words = ("NaN or infinity",)
            yield Damage(f"{what} is {value}", WEIGHTS, rewritten(bend), words)


def _hole(path: Path) -> None:
    header, data = read_tensors(path)
    entries = [entry for name, entry in header.items() if name != "__metadata__"]
    last = max(entries, key=lambda entry: entry["data_offsets"][1])
    last["data_offsets"] = [end + 8 for end in last["data_offsets"]]
    write_tensors(path, header, data + b"\0" * 8)


PART = "part-1.safetensors"
_PARTS: list[Any] = [
    *("../base/model.safetensors", "/etc/passwd", "/dev/zero", "part-9.safetensors"),
    *("../a/../base/model.safetensors", 1, None, [PART], "", ".", "..", "a\0b"),
    *("a\nb.safetensors", "\x1b[2J.safetensors", "\ud800.safetensors", "x" * 5000),
    *(INDEX, "config.json", "pytorch_model.bin", {"file": PART}, f"./{PART}/"),
    "https://localhost:9/x.safetensors",
]
_INDICES: list[Any] = [
    *([], 1, {"metadata": {}}, {"weight_map": [PART]}, {"weight_map": PART}),
    *({"weight_map": None}, b"", b"{", b"\xff\xfe", b"[" * 200_000),
]


def _indices() -> Iterator[Damage]:
    for part in _PARTS:
        named = functools.partial(_index, part=part)
        yield _of_index(f"that names {shown(part)}", named, INDEX)
    for content in _INDICES:
        yield _of_index(shown(content), lambda _, c=content: c, INDEX)
    yield _of_index("that is good", _index, harmless=True)
    size = {"metadata": {"total_size": -1}}
    yield _of_index("of a wrong size", lambda n: _index(n) | size, harmless=True)
    yield _of_index("that lacks a tensor", lambda names: _index({*names} - {TENSOR}))
    yield _of_index("with a tensor too many", lambda n: _index([*n, "x"]), INDEX)
    yield _of_index("with an empty map", lambda _: _index([]))
    yield Damage("an index with a tensor in the wrong one of two files", "", _misplace)


def _index(names: Iterable[str], part: Any = PART) -> dict[str, Any]:
    return {"metadata": {}, "weight_map": dict.fromkeys(names, part)}


def _of_index(
    name: str, make: Callable[[list[str]], Any], *words: str, harmless: bool = False
) -> Damage:
    def change(folder: Path) -> None:
        header, _ = read_tensors(folder / WEIGHTS)
        shutil.copy(folder / WEIGHTS, folder / PART)
        made = make([name for name in header if name != "__metadata__"])
        content = made if isinstance(made, bytes) else json.dumps(made).encode()
        (folder / INDEX).write_bytes(content)

    return Damage(f"an index {name}", "", change, words, harmless)


def _misplace(folder: Path) -> None:
    """Put two values of one tensor into two files, and the rest into one of them."""
    tensors = load_file(folder / WEIGHTS)
    alone = {"lm_head.weight": tensors.pop("lm_head.weight")}
    save_file(tensors, folder / "one.safetensors", {"format": "pt"})
    save_file(alone, folder / "two.safetensors", {"format": "pt"})
    (folder / WEIGHTS).unlink()
    places = dict.fromkeys([*tensors, *alone], "one.safetensors")
    places["model.norm.weight"] = "two.safetensors"
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


_SIZES = (
    *("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"),
    *("vocab_size", "num_key_value_heads", "head_dim"),
)
_VALUES: list[Any] = [0, -1, 10**9, 10**400, 1.5, "x", [1], [], {"x": 1}, INF, NAN]


def _configurations() -> Iterator[Damage]:
    file = "config.json"
    for key in _SIZES:
        fine = key in ("vocab_size", "head_dim")  # rows count; told at the search
        for value in _VALUES:
            yield Damage(f"{key} is {shown(value)}", file, _with(key, value), (), fine)
        yield Damage(f"no {key}", file, _without(key), (), True, ("base",))
    part = _with("text_config", {"num_hidden_layers": 10**9})
    yield Damage("a part of a billion layers", file, part, harmless=True)
    yield from _whole(file, file)
    yield from _whole("tokenizer.json", "tokenizer.json", models=("base",))
    yield from _whole("tokenizer_config.json", harmless=True)


_SETTINGS: dict[str, list[Any]] = {
    "r": _VALUES,
    "lora_alpha": _VALUES,
    "target_modules": [*_VALUES, "(a+)+$"],  # a slow pattern
    "peft_type": ["PREFIX_TUNING", None],
    "base_model_name_or_path": [*_VALUES, None],
}
_REFUSED = {  # the other settings may be merged, or are refused at the search
    "r": [0, -1, "x", 10**9, NAN],
    "lora_alpha": ["x", INF, NAN],
}
_Q = "base_model.model.model.layers.0.self_attn.q_proj"
_A, _B = f"{_Q}.lora_A.weight", f"{_Q}.lora_B.weight"
_OF_ADAPTERS: dict[str, Callable[[Tensors], Any]] = {
    "without one A": lambda t: t.pop(_A),
    "without one B": lambda t: t.pop(_B),
    "without anything": lambda t: t.clear(),
    "of rank zero": lambda t: t.update({_A: t[_A][:0], _B: t[_B][:, :0].clone()}),
    "an A of integers": lambda t: t.update({_A: t[_A].to(torch.int32)}),
    "all of booleans": lambda t: t.update({n: v.bool() for n, v in t.items()}),
    "an A with NaN": lambda t: t[_A].fill_(NAN),
    "a B with infinity": lambda t: t[_B].fill_(INF),
    "of a module that is not there": lambda t: _renamed(t, "q_proj", "z_proj"),
    "of a layer that is not there": lambda t: _renamed(t, "layers.0", "layers.9"),
    "an A that nothing asked for": lambda t: t.update(extra=torch.ones(2)),
}


def _renamed(tensors: Tensors, old: str, new: str) -> None:
    tensors |= {name.replace(old, new): tensors.pop(name) for name in (_A, _B)}


def _adapters() -> Iterator[Damage]:
    weights, settings = "adapter_model.safetensors", "adapter_config.json"
    alone = ("adapter",)
    for key, values in _SETTINGS.items():
        for value in values:
            fine, change = value not in _REFUSED.get(key, []), _with(key, value)
            yield Damage(f"{key} is {shown(value)}", settings, change, (), fine, alone)
        yield Damage(f"no {key}", settings, _without(key), (), True, alone)
    for name, bend in _OF_ADAPTERS.items():
        yield Damage(f"weights {name}", weights, rewritten(bend), models=alone)
    for tensor, (way, make) in itertools.product((_A, _B), _SHAPES.items()):
        yield Damage(f"{tensor} {way}", weights, _replaced(tensor, make), models=alone)
    for file in (weights, settings):
        yield from _whole(file, file, models=alone)
    pickled = functools.partial(_pickle_alone, weights, "adapter_model.bin")
    yield Damage("weights that are a pickle", "", pickled, ("pickled",), models=alone)


_PICKLE = pickle.dumps({"weight": Evil()})
_CODE: list[tuple[str, str, Any]] = [
    ("config.json", "AutoConfig", "modeling_x.Config"),
    ("config.json", "AutoModelForCausalLM", "modeling_x.Model"),
    ("tokenizer_config.json", "AutoTokenizer", ["modeling_x.Slow", None]),
    ("tokenizer_config.json", "AutoTokenizer", "modeling_x.Slow"),
]


def _code() -> Iterator[Damage]:
    """Code of a stranger, which nobody has asked to be run."""
    for file in ("pytorch_model.bin", "model.bin", "training_args.bin", "x.pkl"):
        yield Damage(f"a pickle beside weights: {file}", file, put(_PICKLE), (), True)
        alone = functools.partial(_pickle_alone, WEIGHTS, file)
        yield Damage(f"a pickle alone: {file}", "", alone)
    for (file, key, name), own in itertools.product(_CODE, (False, True)):
        more: dict[str, Any] = {"auto_map": {key: name}}
        more |= {"model_type": "magic", "tokenizer_class": "Slow"} if own else {}
        change = functools.partial(_with_code, file, more)
        kind = "its own" if own else "a known"
        title = f"code in {file} for {key} {name} of {kind} kind"
        yield Damage(title, "", change, harmless=True)


def _pickle_alone(weights: str, file: str, folder: Path) -> None:
    (folder / weights).unlink()
    (folder / file).write_bytes(_PICKLE)


def _with_code(file: str, more: dict[str, Any], folder: Path) -> None:
    (folder / "modeling_x.py").write_text(EVIL)
    bent(lambda content: content.update(more))(folder / file)


_FOLDERS: dict[str, Change] = {
    "a file": lambda p: (shutil.rmtree(p), p.write_text("x")),
    "a pipe": lambda p: (shutil.rmtree(p), os.mkfifo(p)),
    "a link to itself": lambda p: (shutil.rmtree(p), p.symlink_to(p)),
    "an empty folder": lambda p: (shutil.rmtree(p), p.mkdir()),
    "gone": shutil.rmtree,
}


def _folders() -> Iterator[Damage]:
    for name, change in _FOLDERS.items():
        yield Damage(f"the folder is {name}", "", change)
    yield Damage("the folder is a link", "", _linked, harmless=True)


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
