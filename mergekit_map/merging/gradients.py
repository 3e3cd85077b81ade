"""Derivatives of a loss by the coefficients, from backward passes through the model.

docs/architecture.md has the mathematics. As soon as a tensor's gradient is complete,
its inner products with the task vectors are computed and the gradient is freed, so that
only one is held at a time. (The gradient of tied embeddings is complete only at the end
of the backward pass.) The result is exact, also for normalised weights.

For methods that elect signs it would not be exact: with fixed elections, up to three
quarters of the slope of the loss, or its sign, were missing on the models that the demo
trains. There the slope over a tenth of the bounds is computed once, at the end, for the
sum of all gradients, which is kept until then: one more copy of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeAlias

import torch
from mergekit import merge_methods
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import MapBlock
from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.merging.in_memory import ResidentMerge
from mergekit_map.merging.methods import PREFIX, TASK_VECTOR_METHODS
from mergekit_map.merging.replay import MethodReplay, TaskVectorReplay
from mergekit_map.merging.space import MergeSpace
from mergekit_map.types import Differentiate

# Of the width of the box, to each side. Slopes over 0.02 to 0.2 fitted equally well.
_STEP = 0.05

# Elements handled at a time. The intermediate values stay in the cache of a CPU;
# accelerators need more to be busy.
_SLICE_CPU = 1 << 17
_SLICE = 1 << 23

# The slope of a function f at c as a sum of ``factor * f(c + offset * step) / step``,
# to the second order, by which sides of c lie in the box.
_CENTRAL = [(-1, -0.5), (1, 0.5)]
_FORWARD = [(0, -1.5), (1, 2.0), (2, -0.5)]
_BACKWARD = [(0, 1.5), (-1, -2.0), (-2, 0.5)]

# Factors, and the weights of the models that they belong to.
_Stencil: TypeAlias = Sequence[tuple[float, Sequence[float]]]


def check_gradients(merge: MergeConfig, spec: MapBlock) -> list[Problem]:
    """List the reasons why the requested derivatives cannot be computed."""
    key = ("map", "search", "gradients")
    if not spec.search.gradients:
        text = "keeping no activations serves gradients only; add 'gradients: true'"
        place = (*key[:-1], "checkpoint_activations")
        return [Problem(place, text)] if spec.search.checkpoint_activations else []
    problems = []
    method = str(merge.get("merge_method"))
    known = [m.spec.name for m in merge_methods.registered_methods()]
    if method in known and method.removeprefix(PREFIX) not in TASK_VECTOR_METHODS:
        problems.append(
            f"{method!r} does not add up weighted task vectors, so derivatives by its "
            f"weights are not known; use one of {', '.join(TASK_VECTOR_METHODS)}"
        )
    if spec.merge == "disk":
        problems.append(
            "derivatives are taken of a merge in memory, with its task vectors; remove "
            "'merge: disk', and 'backend' with it"
        )
    if all(task.kind != "perplexity" for task in spec.tasks.values()):
        problems.append(
            "only perplexity tasks have derivatives, and there is none; add one"
        )
    return [Problem(key, f"{text}, or leave 'gradients' out") for text in problems]


def differentiation(
    merge: ResidentMerge, space: MergeSpace, *, checkpoint_activations: bool
) -> Differentiate:
    """Return a context that collects derivatives of the resident model's losses.

    The derivatives are taken at the model's present coefficients. With
    ``checkpoint_activations`` a backward pass computes each layer's activations again
    instead of keeping them.

    Raises:
        MergeError: a tensor is not a sum of weighted task vectors, or transformers
            does not know the model's layers.
    """
    replays = {}
    for name, replay in merge.replays.items():
        if isinstance(replay, MethodReplay):
            raise MergeError(
                f"{name} is not a sum of weighted task vectors, so its derivatives are "
                "not known; set 'gradients: false' in the search"
            )
        replays[name] = replay
    parts = merge.model.modules() if checkpoint_activations else ()
    layers = [part for part in parts if isinstance(part, GradientCheckpointingLayer)]
    if checkpoint_activations and not layers:
        raise MergeError(
            f"{type(merge.model).__name__} has no layers that transformers can "
            "checkpoint; set 'checkpoint_activations: false' in the search"
        )
    return partial(_derivatives, merge, replays, space, layers)


@contextmanager
def _derivatives(
    merge: ResidentMerge,
    replays: Mapping[str, TaskVectorReplay],
    space: MergeSpace,
    layers: Sequence[GradientCheckpointingLayer],
) -> Iterator[dict[str, float]]:
    """Sum the derivatives of all backward passes in the context, by coefficient."""
    derivatives = dict.fromkeys(space.names, 0.0)
    kept: dict[str, TaskVectorReplay] = {}
    # Read anew each time, as in ResidentMerge.write.
    targets = merge.model.state_dict(keep_vars=True)
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        for layer in layers:
            stack.enter_context(_checkpointed(layer))
        for name, replay in replays.items():
            slopes = merge.weights.slopes_of(name, replay.models)
            if not slopes:
                continue  # no coefficient changes this tensor
            stack.enter_context(_differentiated(targets[name]))
            if replay.elects_signs:
                kept[name] = replay
                continue
            weights = merge.weights.of(name, replay.models, merge.coefficients)
            chain = partial(_slopes_of_sums, replay, weights, slopes)
            take = partial(_take_gradient, derivatives, chain)
            hook = targets[name].register_post_accumulate_grad_hook(take)
            stack.callback(hook.remove)
        yield derivatives
        for name, replay in kept.items():
            chain = partial(_slopes_over_steps, replay, _stencils(merge, space, name))
            _take_gradient(derivatives, chain, targets[name])


@contextmanager
def _differentiated(target: Tensor) -> Iterator[None]:
    target.requires_grad = True
    try:
        yield
    finally:
        target.requires_grad = False
        target.grad = None


def _take_gradient(
    derivatives: dict[str, float],
    chain: Callable[[Tensor], Mapping[str, float]],
    target: Tensor,
) -> None:
    """Turn the gradient of a tensor into derivatives, and free it."""
    gradient, target.grad = target.grad, None
    if gradient is None:
        return  # nothing was passed back
    for name, value in chain(gradient).items():
        derivatives[name] += value


@contextmanager
def _checkpointed(layer: GradientCheckpointingLayer) -> Iterator[None]:
    """Make a layer discard its activations and recompute them in the backward pass.

    transformers' own switch works only on layers in training mode, where some of them
    apply dropout.
    """
    # An instance has a forward of its own where another library has wrapped it.
    own = vars(layer).get("forward")
    layer.forward = partial(
        checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
    )
    try:
        yield
    finally:
        del layer.forward
        if own is not None:
            layer.forward = own


def _slopes_of_sums(
    replay: TaskVectorReplay,
    weights: Sequence[float],
    slopes: Mapping[str, Sequence[float]],
    gradient: Tensor,
) -> dict[str, float]:
    by_weight = [0.0] * len(weights)
    for deltas, part in _slices(replay, gradient):
        products = (deltas * part).sum(dim=1).tolist()
        by_weight = [a + b for a, b in zip(by_weight, products, strict=True)]
    divisor = sum(weights)
    if replay.normalize and abs(divisor) >= 1e-8:  # as mergekit, which else takes 1
        pairs = zip(weights, by_weight, strict=True)
        mean = sum(weight * product for weight, product in pairs) / divisor
        by_weight = [(product - mean) / divisor for product in by_weight]
    return {
        name: replay.scale * sum(s * p for s, p in zip(slope, by_weight, strict=True))
        for name, slope in slopes.items()
    }


def _slopes_over_steps(
    replay: TaskVectorReplay, stencils: Mapping[str, _Stencil], gradient: Tensor
) -> dict[str, float]:
    derivatives = dict.fromkeys(stencils, 0.0)
    for deltas, part in _slices(replay, gradient):
        for name, stencil in stencils.items():
            change = torch.zeros_like(part)
            for factor, weights in stencil:
                column = deltas.new_tensor(weights)[:, None]
                change += factor * replay.merge_deltas(deltas, column)
            derivatives[name] += float((change * part).sum())
    return derivatives


def _stencils(
    merge: ResidentMerge, space: MergeSpace, tensor: str
) -> dict[str, _Stencil]:
    """List the weights of a tensor whose weighted merges add up to slopes.

    The steps stay within the bounds, so that no weight changes its sign at a bound.
    """
    models = merge.replays[tensor].models
    bounds = dict(zip(space.names, space.bounds.tolist(), strict=True))
    stencils: dict[str, _Stencil] = {}
    for name in merge.weights.slopes_of(tensor, models):
        (lower, upper), value = bounds[name], merge.coefficients[name]
        step = _STEP * (upper - lower)
        rule = _CENTRAL
        if value - step < lower:
            rule = _FORWARD
        elif value + step > upper:
            rule = _BACKWARD
        stencils[name] = [
            (factor / step, merge.weights.of(tensor, models, at))
            for offset, factor in rule
            for at in [{**merge.coefficients, name: value + offset * step}]
        ]
    return stencils


def _slices(
    replay: TaskVectorReplay, gradient: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield matching parts of the deltas (n, k) and of the gradient (k,).

    In float32 at least: half precision would round the sums.
    """
    deltas, gradient = replay.full_deltas(), gradient.reshape(-1)
    dtype = torch.promote_types(deltas.dtype, torch.float32)
    step = _SLICE_CPU if deltas.device.type == "cpu" else _SLICE
    for start in range(0, gradient.numel(), step):
        part = slice(start, start + step)
        yield deltas[:, part].to(dtype), gradient[part].to(deltas.device, dtype)
