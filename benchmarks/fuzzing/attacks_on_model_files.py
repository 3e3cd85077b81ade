"""Files of models that strangers made: damaged, hostile, or of something else.

Each is tried through ``inspect`` and ``search``. What no model can be is refused, with
the name of the file or tensor; what may be a model is merged or refused with words.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from attack import Attack, Limits, command, held, refused
from damages import Change, bent, of_bytes, places_taken, put, rewritten
from safetensors.torch import load_file, save_file
from tiny_models import copied, read_tensors, write_tensors

MODELS = ("base", "tuned")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TENSOR = "model.layers.0.mlp.down_proj.weight"  # (32, 64)
MARK = "code-was-run"  # what hostile code writes

EVIL = f"import pathlib\npathlib.Path({MARK!r}).touch()\n"


@dataclass(frozen=True)
class Damage:
    """What is done to the family, and what has to be said of it."""

    name: str
    change: Change  # of the family's folder
    words: tuple[str, ...] = ()
    harmless: bool = False  # it may be merged
    config: str = "merge.yml"


def attacks(seed: int) -> Iterator[Attack]:  # noqa: ARG001 - all of them, every time
    """Yield every damage of every file of every model."""
    for damage in itertools.chain(
        _headers(), _numbers(), _indices(), _configurations(), _tokenizers(),
        _adapters(), _code(), _folders(),
    ):  # fmt: skip
        yield Attack(damage.name, functools.partial(_try, damage))


def _try(damage: Damage, folder: Path) -> str:
    """Say what is wrong with how a damaged model is met."""
    copied(folder)
    damage.change(folder)
    looked = command(["inspect", damage.config], folder, Limits(20))
    # What is wrong stands in the table, on standard output.
    said = [line for line in looked.said.splitlines() if "error" in line]
    looked = replace(looked, err="\n".join(said))
    searched = command(["search", damage.config, "run"], folder, Limits(30))
    judge = held if damage.harmless else functools.partial(refused, seconds=10)
    problems = [
        f"{name}: {problem}"
        for name, outcome, words in (
            ("inspect", looked, ()),
            ("search", searched, damage.words),
        )
        if (problem := judge(outcome, *words))
    ]
    if not damage.harmless and (folder / "run/evaluations.jsonl").exists():
        problems.append("it was measured before it was refused")
    if searched.code == 0 and not problems:
        merged = command(["merge", "run", "out", "--trust-run"], folder, Limits(30))
        if merged.code:
            problems.append(f"merge, after a search that went well: {merged.said}")
    if (folder / MARK).exists():
        problems.append("code of the model was run")
    return "; ".join(problems)


def _of_each_model(
    name: str, change: Callable[[Path], None], *words: str, harmless: bool = False
) -> Iterator[Damage]:
    """Damage one model, or the other."""
    for model in MODELS:
        yield Damage(
            f"{model}: {name}",
            lambda folder, m=model: change(folder / m),
            words,
            harmless,
        )


def _of_base(
    name: str, change: Callable[[Path], None], *words: str, harmless: bool = False
) -> Iterator[Damage]:
    """Damage the model that the merge has configuration and tokenizer of."""
    yield Damage(
        f"base: {name}", lambda folder: change(folder / "base"), words, harmless
    )


# --- headers of tensors ---------------------------------------------------------------

N = 32 * 64 * 4
_OFFSETS = {
    "a negative start": [-8, N - 8],
    "turned round": [N, 0],
    "a stop of 2^63": [0, 2**63],
    "a stop of 2^64": [0, 2**64 + N],
    "huge ones of the right difference": [2**62, 2**62 + N],
    "infinity": [0, float("inf")],
    "not a number": [float("nan"), N],
    "fractions": [0.5, N + 0.5],
    "whole fractions": [0.0, float(N)],
    "strings": ["0", str(N)],
    "booleans": [False, True],
    "three": [0, N, N],
    "one": [0],
    "none": [],
    "null": None,
    "a mapping": {"0": N},
    "nested lists": [[0], [N]],
    "both zero": [0, 0],
}
_SHAPES = {
    "negative": [-32, -64],
    "a billion": [10**9, 10**9],
    "of 2^63": [2**63, 1],
    "fractions": [32.5, 64],
    "whole fractions": [32.0, 64.0],
    "strings": ["32", "64"],
    "booleans": [True, 2048],
    "null": None,
    "a number": 2048,
    "nested": [[32, 64]],
    "infinity": [float("inf"), 64],
    "not a number": [float("nan"), 64],
    "a thousand ones": [1] * 1000 + [32, 64],
    "turned round": [64, 32],
    "flat": [2048],
    "zero": [0, 64],
    "none": [],
}
_DTYPES: dict[str, Any] = {
    "unknown": "F33",
    "in small letters": "f32",
    "of another width": "F64",
    "empty": "",
    "null": None,
    "a number": 32,
    "a list": ["F32"],
    "a mapping": {"F32": 1},
    "complex": "C64",
    "with an escape": "\x1b[31mF32",
}
_METADATA: dict[str, Any] = {
    "a list": ["pt"],
    "a number": 7,
    "a string": "pt",
    "null": None,
    "with a number": {"format": 1},
    "with null": {"format": None},
    "with a list": {"format": ["pt"]},
    "with a mapping": {"format": {"a": "pt"}},
}
_NAMES = {
    "empty": "",
    "with a line break": "a\nb",
    "with an escape": "\x1b[2Jx",
    "with a NUL": "a\0b",
    "an unpaired surrogate": "\ud800",
    "of a megabyte": "x" * 2**20,
    "a path": "../../../etc/passwd",
    "with markup": "[red]x[/red]<script>alert(1)</script>",
}


def _headers() -> Iterator[Damage]:
    entries = {
        "data_offsets": _OFFSETS,
        "shape": _SHAPES,
        "dtype": _DTYPES,
    }
    for key, values in entries.items():
        for name, value in values.items():

            def change(folder: Path, key: str = key, value: Any = value) -> None:
                header, data = read_tensors(folder / WEIGHTS)
                header[TENSOR][key] = value
                write_tensors(folder / WEIGHTS, header, data)

            yield from _of_each_model(f"{key} {name}", change)
        yield from _of_each_model(
            f"a tensor without {key}",
            bent(WEIGHTS, lambda h, k=key: h[TENSOR].pop(k)),
            WEIGHTS,
        )
    for name, value in _METADATA.items():
        yield from _of_each_model(
            f"metadata {name}",
            bent(WEIGHTS, lambda h, v=value: h.update(__metadata__=v)),
            WEIGHTS,
            harmless=value is None,
        )
    for name, new in _NAMES.items():
        yield from _of_each_model(
            f"a tensor's name {name}",
            bent(WEIGHTS, lambda h, n=new: h.update({n: h.pop(TENSOR)})),
        )
    yield from _whole_headers()
    yield from _of_tensors()


def _whole_headers() -> Iterator[Damage]:
    def with_header(make: Callable[[bytes], bytes]) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            header, data = read_tensors(folder / WEIGHTS)
            write_tensors(folder / WEIGHTS, make(json.dumps(header).encode()), data)

        return change

    def with_length(length: int) -> Callable[[Path], None]:
        return of_bytes(WEIGHTS, lambda d: length.to_bytes(8, "little") + d[8:])

    headers = {
        "a list": lambda _: b"[]",
        "a number": lambda _: b"7 ",
        "null": lambda _: b"null",
        "a string": lambda _: b'"x"',
        "not JSON": lambda _: b"{{{{",
        "cut short": lambda h: h[:-5],
        "deeply nested": lambda _: b"[" * 100_000 + b"]" * 100_000,
        "deeply nested in a mapping": lambda _: b'{"a":' * 100_000 + b"}" * 100_000,
        "bytes that are no text": lambda h: h.replace(b"mlp", b"\xff\xfe\xff"),
        "a byte order mark": lambda h: b"\xef\xbb\xbf" + h,
        "a tensor twice": lambda h: (
            h[:-1] + b', "lm_head.weight": {"dtype": "F32", "shape": [0],'
            b' "data_offsets": [0, 0]}}'
        ),
        "empty": lambda _: b"{}",
        "entries that are lists": lambda _: b'{"a": [1, 2]}',
        "a number of 5000 digits": lambda _: (
            b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"],"
            b' "data_offsets": [0, 4]}}'
        ),
        "something behind it": lambda h: h + b"x",
    }
    for name, make in headers.items():
        yield from _of_each_model(f"a header {name}", with_header(make), WEIGHTS)
    yield from _of_each_model(
        "spaces before the header", with_header(lambda h: b"  " + h), WEIGHTS
    )
    yield from _of_each_model(
        "spaces behind the header", with_header(lambda h: h + b" " * 64), harmless=True
    )
    for length in (0, 1, 2, 7, 10**8 + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1):
        yield from _of_each_model(
            f"a header of {length} bytes", with_length(length), WEIGHTS
        )
    cuts: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda _: b"",
        "of 7 bytes": lambda d: d[:7],
        "of 8 bytes": lambda d: d[:8],
        "cut short by a byte": lambda d: d[:-1],
        "cut in half": lambda d: d[: len(d) // 2],
        "with a byte too many": lambda d: d + b"\0",
        "a pickle": lambda _: pickle.dumps({"a": 1}),
        "an archive": lambda _: b"PK\3\4" + b"\0" * 1000,
        "a page of a website": lambda _: b"<!DOCTYPE html><html>404</html>" * 9,
        "a pointer of Git LFS": lambda _: (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
        ),
        "zeros": lambda d: b"\0" * len(d),
    }
    for name, cut in cuts.items():
        yield from _of_each_model(f"weights {name}", of_bytes(WEIGHTS, cut), WEIGHTS)


def _of_tensors() -> Iterator[Damage]:
    """Tensors that lie on one another, that lack, or that nobody asked for."""

    def overlap(header: dict[str, Any]) -> None:
        other = next(n for n, e in header.items() if _is_twin(n, e, header))
        header[TENSOR]["data_offsets"] = header[other]["data_offsets"]

    def swap(header: dict[str, Any]) -> None:
        up = TENSOR.replace("layers.0", "layers.1")
        one, other = header[TENSOR], header[up]
        one["data_offsets"], other["data_offsets"] = (
            other["data_offsets"],
            one["data_offsets"],
        )

    def hole(header: dict[str, Any]) -> None:
        last = max(
            (n for n in header if n != "__metadata__"),
            key=lambda n: header[n]["data_offsets"][1],
        )
        start, stop = header[last]["data_offsets"]
        header[last]["data_offsets"] = [start + 8, stop + 8]

    yield from _of_each_model("tensors that overlap", bent(WEIGHTS, overlap), WEIGHTS)
    yield from _of_each_model(
        "two tensors swapped in place", bent(WEIGHTS, swap), harmless=True
    )
    yield from _of_each_model(
        "a hole between tensors",
        lambda f: (
            bent(WEIGHTS, hole)(f),
            of_bytes(WEIGHTS, lambda d: d + b"\0" * 8)(f),
        )[0],
        WEIGHTS,
    )
    changes: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
        "without a matrix": lambda t: t.pop(TENSOR),
        "without embeddings": lambda t: t.pop("model.embed_tokens.weight"),
        "without a layer": lambda t: [t.pop(n) for n in list(t) if ".1." in n],
        "without anything": lambda t: t.clear(),
        "a matrix of another shape": lambda t: t.update({TENSOR: t[TENSOR][:16]}),
        "a matrix of no rows": lambda t: t.update({TENSOR: t[TENSOR][:0]}),
        "a matrix that is a number": lambda t: t.update({TENSOR: torch.tensor(1.0)}),
        "a matrix with another axis": lambda t: t.update({TENSOR: t[TENSOR][None]}),
        "embeddings of one token": lambda t: t.update(
            {"model.embed_tokens.weight": t["model.embed_tokens.weight"][:1].clone()}
        ),
    }
    for name, change in changes.items():
        yield from _of_each_model(f"weights {name}", rewritten(WEIGHTS, change))
    yield from _of_each_model(
        "a tensor nobody asked for",
        rewritten(WEIGHTS, lambda t: t.update(extra=torch.ones(3))),
        harmless=True,
    )


def _is_twin(name: str, entry: Any, header: Mapping[str, Any]) -> bool:
    same = name != "__metadata__" and name != TENSOR
    return same and entry["shape"] == header[TENSOR]["shape"]


# --- numbers --------------------------------------------------------------------------


def _numbers() -> Iterator[Damage]:
    values = {
        "NaN": float("nan"), "infinity": float("inf"), "-infinity": -float("inf"),
    }  # fmt: skip
    for name, value in values.items():

        def one(tensors: dict[str, torch.Tensor], value: float = value) -> None:
            tensors[TENSOR][7, 7] = value

        def every(tensors: dict[str, torch.Tensor], value: float = value) -> None:
            for tensor in tensors.values():
                tensor.fill_(value)

        for what, change in (("one weight", one), ("every weight", every)):
            yield from _of_each_model(
                f"{what} is {name}", rewritten(WEIGHTS, change), "NaN or infinity"
            )


# --- indices --------------------------------------------------------------------------


def _indices() -> Iterator[Damage]:
    def with_index(make: Callable[[list[str]], Any]) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            header, _ = read_tensors(folder / WEIGHTS)
            names = [name for name in header if name != "__metadata__"]
            (folder / "part-1.safetensors").write_bytes((folder / WEIGHTS).read_bytes())
            made = make(names)
            if not isinstance(made, bytes):
                made = json.dumps(made).encode()
            (folder / INDEX).write_bytes(made)

        return change

    def all_in(place: Any) -> Callable[[list[str]], Any]:
        return lambda names: {"metadata": {}, "weight_map": dict.fromkeys(names, place)}

    part = "part-1.safetensors"
    for name, place in {
        "a file of another model": "../base/model.safetensors",
        "a file of the system": "/etc/passwd",
        "a file by its whole path": "/dev/zero",
        "a way out and back": "../tuned/../base/model.safetensors",
        "a file that is not there": "part-9.safetensors",
        "a number": 1,
        "null": None,
        "a list": [part],
        "nothing": "",
        "its folder": ".",
        "the folder above": "..",
        "a name with a NUL": "a\0b",
        "a name with a line break": "a\nb.safetensors",
        "a name with an escape": "\x1b[2J.safetensors",
        "an unpaired surrogate": "\ud800.safetensors",
        "a name of 5000 letters": "x" * 5000,
        "itself": INDEX,
        "the configuration": "config.json",
        "a pickle": "pytorch_model.bin",
        "a mapping": {"file": part},
        "a folder of its own": "./part-1.safetensors/",
        "a place on the Web": "https://localhost:9/x.safetensors",
    }.items():
        yield from _of_each_model(
            f"an index that names {name}", with_index(all_in(place)), INDEX
        )
    yield from _of_each_model("a good index", with_index(all_in(part)), harmless=True)
    whole = {
        "that is a list": [],
        "that is a number": 1,
        "that is empty": b"",
        "that is not JSON": b"{",
        "that is no text": b"\xff\xfe",
        "that is nested deeply": b"[" * 200_000,
        "without a map": {"metadata": {}},
        "whose map is a list": {"weight_map": [part]},
        "whose map is a string": {"weight_map": part},
        "whose map is null": {"weight_map": None},
    }
    for name, content in whole.items():
        yield from _of_each_model(
            f"an index {name}", with_index(lambda _, c=content: c), INDEX
        )
    for name, make in {
        "that lacks a tensor": lambda names: {
            "weight_map": dict.fromkeys([n for n in names if n != TENSOR], part)
        },
        "with an empty map": lambda _: {"weight_map": {}},
    }.items():
        yield from _of_each_model(f"an index {name}", with_index(make))
    yield from _of_each_model(
        "an index with a tensor too many",
        with_index(lambda names: {"weight_map": dict.fromkeys([*names, "x"], part)}),
        INDEX,
    )
    yield from _of_each_model(
        "an index whose size is wrong",
        with_index(
            lambda names: {
                "metadata": {"total_size": -1},
                "weight_map": dict.fromkeys(names, part),
            }
        ),
        harmless=True,
    )
    yield from _of_each_model(
        "an index that says a tensor is in the wrong one of two files", _in_wrong_file
    )


def _in_wrong_file(folder: Path) -> None:
    """Put two values of one tensor into two files, and the rest into one of them."""
    tensors = load_file(folder / WEIGHTS)
    alone = {"lm_head.weight": tensors.pop("lm_head.weight")}
    save_file(tensors, folder / "one.safetensors", {"format": "pt"})
    save_file(alone, folder / "two.safetensors", {"format": "pt"})
    (folder / WEIGHTS).unlink()
    places = dict.fromkeys(tensors, "one.safetensors")
    places["lm_head.weight"] = "one.safetensors"
    places["model.norm.weight"] = "two.safetensors"
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


# --- configurations -------------------------------------------------------------------

_SIZES = (
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "intermediate_size",
    "vocab_size",
    "num_key_value_heads",
    "head_dim",
)
_VALUES: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "a billion": 10**9,
    "2^63": 2**63,
    "of 400 digits": 10**400,
    "a fraction": 1.5,
    "a word": "x",
    "a list": [1],
    "an empty list": [],
    "a mapping": {"x": 1},
    "infinity": float("inf"),
    "NaN": float("nan"),
}


def _configurations() -> Iterator[Damage]:
    for key in _SIZES:
        for name, value in _VALUES.items():
            yield from _of_each_model(
                f"{key} is {name}",
                bent("config.json", lambda c, k=key, v=value: c.update({k: v})),
            )
    for key in _SIZES:
        yield from _of_base(
            f"no {key}", bent("config.json", lambda c, k=key: c.pop(k, None)),
            harmless=True,
        )  # fmt: skip
    yield from _broken("config.json")
    yield from _of_each_model(
        "a part of a billion layers",
        bent(
            "config.json",
            lambda c: c.update(text_config={"num_hidden_layers": 10**9}),
        ),
        harmless=True,
    )


def _broken(file: str, *, harmless: bool = False) -> Iterator[Damage]:
    """Damage a file of JSON as a whole."""
    for name, content in {
        "empty": b"",
        "of spaces": b" " * 1000,
        "a list": b"[]",
        "a number": b"1",
        "null": b"null",
        "a string": b'"x"',
        "cut short": b'{"a": ',
        "no text": b"\xff\xfe\x00\x80",
        "nested deeply": b"[" * 200_000,
        "mappings nested deeply": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "a number of 5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
        "a page of a website": b"<!DOCTYPE html><html>404</html>",
    }.items():
        yield from _of_each_model(
            f"{file} {name}", put(file, content), file, harmless=harmless
        )
    for name, change in places_taken(file).items():
        yield from _of_each_model(f"{file} is {name}", change, harmless=harmless)


# --- tokenizers -----------------------------------------------------------------------


def _tokenizers() -> Iterator[Damage]:
    for name, content in {
        "empty": b"",
        "a number": b"1",
        "cut short": b'{"model": {',
        "no text": b"\xff\xfe\x00",
        "nested deeply": b"[" * 200_000,
    }.items():
        yield from _of_each_model(
            f"tokenizer.json {name}", put("tokenizer.json", content), "tokenizer.json"
        )
    for name, change in places_taken("tokenizer.json").items():
        yield Damage(
            f"base: tokenizer.json is {name}",
            lambda folder, c=change: c(folder / "base"),
        )
    yield from _broken("tokenizer_config.json", harmless=True)


# --- adapters -------------------------------------------------------------------------

_SETTINGS: dict[str, Mapping[str, Any]] = {
    "r": _VALUES,
    "lora_alpha": _VALUES,
    "target_modules": {**_VALUES, "a slow pattern": "(a+)+$"},
    "peft_type": {"PREFIX_TUNING": "PREFIX_TUNING", "null": None},
    "base_model_name_or_path": {**_VALUES, "null": None},
}


def _adapters() -> Iterator[Damage]:
    file, settings = "adapter_model.safetensors", "adapter_config.json"
    surely = {("r", "0"), ("r", "-1"), ("r", "a word"), ("lora_alpha", "a word")}
    surely |= {("r", "a billion"), ("lora_alpha", "NaN"), ("lora_alpha", "infinity")}
    for key, values in _SETTINGS.items():
        for name, value in values.items():
            yield _of_adapter(
                f"{key} is {name}",
                bent(settings, lambda c, k=key, v=value: c.update({k: v})),
                harmless=(key, name) not in surely,
            )
        yield _of_adapter(
            f"no {key}", bent(settings, lambda c, k=key: c.pop(k, None)), harmless=True
        )
    first = "base_model.model.model.layers.0.self_attn.q_proj"
    a, b = f"{first}.lora_A.weight", f"{first}.lora_B.weight"
    tensors: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
        "without one A": lambda t: t.pop(a),
        "without one B": lambda t: t.pop(b),
        "without anything": lambda t: t.clear(),
        "an A of another rank": lambda t: t.update({a: t[a][:2].clone()}),
        "an A too narrow": lambda t: t.update({a: t[a][:, :8].clone()}),
        "a B too short": lambda t: t.update({b: t[b][:8].clone()}),
        "both of rank zero": lambda t: t.update({a: t[a][:0], b: t[b][:, :0].clone()}),
        "an A that is a vector": lambda t: t.update({a: t[a][0].clone()}),
        "an A with another axis": lambda t: t.update({a: t[a][None]}),
        "an A of integers": lambda t: t.update({a: t[a].to(torch.int32)}),
        "all of booleans": lambda t: t.update({n: v.bool() for n, v in t.items()}),
        "an A with NaN": lambda t: t[a].fill_(float("nan")),
        "a B with infinity": lambda t: t[b].fill_(float("inf")),
        "of a module that is not there": lambda t: t.update(
            {a.replace("q_proj", "z_proj"): t.pop(a),
             b.replace("q_proj", "z_proj"): t.pop(b)}
        ),
        "of a layer that is not there": lambda t: t.update(
            {a.replace("layers.0", "layers.9"): t.pop(a),
             b.replace("layers.0", "layers.9"): t.pop(b)}
        ),
        "an A that nothing asked for": lambda t: t.update(extra=torch.ones(2)),
    }  # fmt: skip
    for name, change in tensors.items():
        yield _of_adapter(f"weights {name}", rewritten(file, change))
    for name, content in {"empty": b"", "no header": b"\xff" * 64}.items():
        yield _of_adapter(f"weights {name}", put(file, content), file)
    for name, content in {
        "a list": b"[]",
        "cut short": b"{",
        "no text": b"\xff",
    }.items():
        yield _of_adapter(f"settings {name}", put(settings, content), settings)
    for path in (file, settings):
        for name, change in places_taken(path).items():
            yield _of_adapter(f"{path} is {name}", change)

    def pickled(folder: Path) -> None:
        (folder / file).unlink()
        (folder / "adapter_model.bin").write_bytes(_pickle())

    yield _of_adapter("weights that are a pickle", pickled, "pickled")


def _of_adapter(
    name: str, change: Change, *words: str, harmless: bool = False
) -> Damage:
    return Damage(
        f"adapter: {name}",
        lambda folder: change(folder / "adapter"),
        words,
        harmless,
        "adapted.yml",
    )


# --- code -----------------------------------------------------------------------------


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (EVIL,))


def _pickle() -> bytes:
    return pickle.dumps({"weight": _Evil()})


def _code() -> Iterator[Damage]:
    """Code of a stranger, which nobody has asked to be run."""
    for file in (
        "pytorch_model.bin",
        "model.bin",
        "tokenizer.pkl",
        "training_args.bin",
    ):
        yield from _of_each_model(
            f"a pickle beside the weights: {file}", put(file, _pickle()), harmless=True
        )

        def alone(folder: Path, file: str = file) -> None:
            (folder / WEIGHTS).unlink()
            (folder / file).write_bytes(_pickle())

        yield from _of_each_model(f"a pickle alone: {file}", alone)
    for kind, key, name in (
        ("config.json", "AutoConfig", "modeling_x.Config"),
        ("config.json", "AutoModelForCausalLM", "modeling_x.Model"),
        ("tokenizer_config.json", "AutoTokenizer", ["modeling_x.Slow", None]),
        ("tokenizer_config.json", "AutoTokenizer", "modeling_x.Slow"),
    ):
        for own in (False, True):

            def change(
                folder: Path,
                kind: str = kind,
                key: str = key,
                name: Any = name,
                own: bool = own,
            ) -> None:
                (folder / "modeling_x.py").write_text(EVIL)
                more: dict[str, Any] = {"auto_map": {key: name}}
                if own:
                    more |= {"model_type": "magic", "tokenizer_class": "Slow"}
                bent(kind, lambda c: c.update(more))(folder)

            said = "of its own" if own else "of a known kind"
            yield from _of_each_model(
                f"code in {kind} for {key} {name} {said}", change, harmless=True
            )


# --- folders --------------------------------------------------------------------------


def _folders() -> Iterator[Damage]:
    for name, change in places_taken(WEIGHTS).items():
        yield from _of_each_model(f"{WEIGHTS} is {name}", change)

    def into_file(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.write_text("x")

    def into_pipe(folder: Path) -> None:
        shutil.rmtree(folder)
        os.mkfifo(folder)

    def into_loop(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.symlink_to(folder)

    def emptied(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    def linked(folder: Path) -> None:
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to("elsewhere")

    for name, change in {
        "a file": into_file,
        "a pipe": into_pipe,
        "a link to itself": into_loop,
        "an empty folder": emptied,
        "gone": shutil.rmtree,
    }.items():
        yield from _of_each_model(f"the folder is {name}", change)
    yield from _of_each_model("the folder is a link", linked, harmless=True)
