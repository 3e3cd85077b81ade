"""What a model is, so that others may use it and it is the same again.

Weights are told apart by exact sums of their bits, which also see what is written past
the counters of torch. A sum reads each weight once, less than any forward pass does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mergekit_map.tasks.bit_sums import bit_sums
from mergekit_map.tasks.model_settings import ModelSettings, gather_settings, same
from mergekit_map.words import listed

_SHOWN = 3  # names of what was changed


@dataclass
class Changes:
    """What became another one, in words."""

    harm: list[str] = field(default_factory=list)  # another model than the merge
    settings: list[str] = field(default_factory=list)  # how it is used


@dataclass(frozen=True, eq=False)
class _Tensor:
    """A tensor of the model, and the memory that it had."""

    tensor: Tensor
    memory: Tensor
    layout: tuple[Any, ...]
    requires_grad: bool
    grad: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> _Tensor:
        memory, layout = tensor.detach(), _layout(tensor)
        return cls(tensor, memory, layout, tensor.requires_grad, tensor.grad)

    @property
    def is_moved(self) -> bool:
        """Tell whether it lies elsewhere, or as something else."""
        return _layout(self.tensor) != self.layout

    def restore(self) -> None:
        """Have it lie where it did; what it says may be lost."""
        storage, size = self.memory.untyped_storage(), self.layout[-1]
        if storage.nbytes() != size:
            storage.resize_(size)
        self.tensor.data = self.memory


@dataclass(frozen=True, eq=False)
class _Module:
    """A module and all that it holds; of its dictionaries, what is in them."""

    name: str
    module: nn.Module
    kind: type
    content: Mapping[str, Any]
    dictionaries: Mapping[str, Mapping[Any, Any]]

    @classmethod
    def of(cls, name: str, module: nn.Module) -> _Module:
        content = dict(vars(module))
        found = {k: dict(v) for k, v in content.items() if isinstance(v, dict)}
        return cls(name, module, type(module), content, found)


class ModelState:
    """A model as it is now.

    Args:
        model: Whose state it is.
        copied: Names of tensors that nobody else can write again.
    """

    def __init__(self, model: nn.Module, copied: Mapping[str, Tensor]):
        self._copied = copied
        self._modules = [
            _Module.of(name, module) for name, module in model.named_modules()
        ]
        self._tensors = {
            name: _Tensor.of(tensor) for name, tensor in _tensors_of(model).items()
        }
        self._forwards = {
            kind: vars(kind).get("forward") for kind in {m.kind for m in self._modules}
        }
        found: dict[int, ModelSettings] = {}
        for one in self._modules:
            for key, value in one.content.items():
                gather_settings(key, value, found)
        self._settings = list(found.values())

    def restore(self) -> Changes:
        """Put all back but what weights say, and tell what had been changed."""
        changes = Changes()
        self._restore_kinds(changes)
        for one in self._modules:
            _restore_module(one, changes)
        moved = []
        for name, known in self._tensors.items():
            moved += [name] if known.is_moved else []
            _restore_tensor(known, changes)
        if moved:
            changes.harm.append(f"what holds {_some(moved)}")
        for setting in self._settings:
            changes.settings += setting.restore()[:_SHOWN]
        return changes

    def sums(self) -> dict[str, tuple[int, ...]]:
        """Sum up the bits of each tensor; others have other sums.

        All of them are asked of the device before any is waited for.
        """
        found = {name: bit_sums(known.memory) for name, known in self._tensors.items()}
        return {name: tuple(total.tolist()) for name, total in found.items()}

    def write_copied(self) -> None:
        """Write what nobody else can write again."""
        with torch.no_grad():
            for name, content in self._copied.items():
                self._tensors[name].memory.copy_(content)

    def _restore_kinds(self, changes: Changes) -> None:
        for kind, forward in self._forwards.items():
            if vars(kind).get("forward") is not forward:
                changes.harm.append(f"the code of {kind.__name__}")
                if forward is None:
                    del kind.forward  # type: ignore[attr-defined]
                else:
                    kind.forward = forward  # type: ignore[attr-defined]


def copies_of(model: nn.Module, written: Collection[str] | None) -> dict[str, Tensor]:
    """Copy what is not written with each merge; None: all of it will be."""
    if written is None:
        return {}
    tensors = _tensors_of(model)
    state = model.state_dict(keep_vars=True)
    there = {id(state[name]) for name in written if name in state}
    return {n: t.detach().clone() for n, t in tensors.items() if id(t) not in there}


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """List parameters and buffers, tied ones once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return (
        tensor.data_ptr(),
        tensor.dtype,
        tensor.device,
        tensor.shape,
        tensor.stride(),
        tensor.untyped_storage().nbytes(),
    )


def _restore_tensor(known: _Tensor, changes: Changes) -> None:
    tensor = known.tensor
    if known.is_moved:
        known.restore()
    if tensor.requires_grad != known.requires_grad:
        _add(changes.settings, "requires_grad")
        tensor.requires_grad_(known.requires_grad)
    if tensor.grad is not known.grad:
        tensor.grad = known.grad


def _restore_module(one: _Module, changes: Changes) -> None:
    module, place = one.module, one.name or "the model"
    if type(module) is not one.kind:
        changes.harm.append(f"the kind of {place}")
        module.__class__ = one.kind
    content = vars(module)
    for key in content.keys() - one.content.keys():
        if key == "forward":
            changes.harm.append(f"forward of {place}")
        del content[key]
    for key, value in one.content.items():
        if key not in content or content[key] is not value:
            if key not in content or not same(content[key], value):
                _tell(key, place, changes)
            content[key] = value
    for key, known in one.dictionaries.items():
        # Some models make these anew for longer texts.
        fleeting = content.get("_non_persistent_buffers_set", ())
        _restore_dictionary(key, content[key], known, place, fleeting, changes)


def _restore_dictionary(
    key: str,
    there: dict[Any, Any],
    known: Mapping[Any, Any],
    place: str,
    fleeting: Collection[str],
    changes: Changes,
) -> None:
    if list(there) == list(known) and all(there[k] is v for k, v in known.items()):
        return
    names = [str(k) for k in known if there.get(k) is not known[k]]
    names += [str(k) for k in there.keys() - known.keys()]
    kept = any(name not in fleeting for name in names)
    if "hooks" in key:
        _add(changes.harm, f"hooks of {place}")
    elif key in ("_parameters", "_modules") or (key == "_buffers" and kept):
        changes.harm.append(f"{_some(names)} of {place}")
    there.clear()
    there.update(known)


def _tell(key: str, place: str, changes: Changes) -> None:
    if key == "training":
        _add(changes.settings, "training mode")
    elif key == "forward":
        changes.harm.append(f"forward of {place}")
    elif not key.startswith("_"):
        _add(changes.settings, f"{key} of {place}")


def _add(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)


def _some(names: list[str]) -> str:
    """Name some of many."""
    more = len(names) - _SHOWN
    return listed(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
