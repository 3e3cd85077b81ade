"""Next steps after a search or a merge, as commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import click

from mergekit_map.hub.markdown import has_chat_template
from mergekit_map.utils.files import read_json_or_nothing

# Of transformers; vLLM and llama.cpp both know these. What is missing here may work.
_SERVED = frozenset(
    {
        *("CohereForCausalLM", "Cohere2ForCausalLM", "DeepseekV2ForCausalLM"),
        *("DeepseekV3ForCausalLM", "ExaoneForCausalLM", "FalconForCausalLM"),
        *("GPT2LMHeadModel", "GPTNeoXForCausalLM", "GemmaForCausalLM"),
        *("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Glm4ForCausalLM"),
        *("GraniteForCausalLM", "LlamaForCausalLM", "MistralForCausalLM"),
        *("MixtralForCausalLM", "NemotronForCausalLM", "OlmoForCausalLM"),
        *("Olmo2ForCausalLM", "OlmoeForCausalLM", "PhiForCausalLM"),
        *("Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"),
        *("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "StableLmForCausalLM"),
        "Starcoder2ForCausalLM",
    }
)
# llama.cpp knows the tokenizers of published models, and none of them is so small.
_SMALLEST_VOCABULARY = 30_000

_Step: TypeAlias = tuple[str, Sequence[str]]  # what it is for, and its commands


def show_steps(steps: Sequence[_Step]) -> None:
    """Print each step with its commands, on lines of their own to be copied."""
    click.echo("\nNext:")
    for purpose, commands in steps:
        click.echo(f"  {purpose}")
        for command in commands:
            click.echo(f"    {command}")


def after_search(
    run: Path, tasks: Sequence[str], *, has_base: bool = True
) -> list[_Step]:
    """Return the steps after a search: look at it, choose from it."""
    return [
        ("Look at it, one page with sliders", [_typed("report", run)]),
        ("Choose, at no cost, and merge", [*_choosing(run, tasks, has_base=has_base)]),
    ]


def after_merge(
    run: Path, out: Path, tasks: Sequence[str], *, has_base: bool = True
) -> list[_Step]:
    """Return the steps after a merge: look, choose again, try or publish it."""
    return [
        ("Look at the trade-offs, one page with sliders", [_typed("report", run)]),
        (
            "Choose another one, at no cost, and merge it",
            [*_choosing(run, tasks, has_base=has_base)],
        ),
        *([("Try it", found)] if (found := [*_trying(out)]) else []),
        (
            "Publish it, private unless told otherwise",
            [_typed("push", out, "YOU/NAME")],
        ),
    ]


def _choosing(run: Path, tasks: Sequence[str], *, has_base: bool) -> Iterator[str]:
    yield _typed("browse", run)
    first, *others = tasks
    wish = ",".join([f"{first}=2", *(f"{task}=1" for task in others)])
    yield _typed("select", run, "--prefer", wish)
    if has_base:
        yield _typed("select", run, "--not-worse-than", "base")
    yield _typed("merge", run, "OUT")


def _trying(out: Path) -> Iterator[str]:
    """List the programs that run this checkpoint, by architecture and tokenizer."""
    config = read_json_or_nothing(out / "config.json")
    (architecture,) = (config.get("architectures") or [""])[:1]
    if not str(architecture).endswith(("ForCausalLM", "LMHeadModel")):
        return
    folder = shlex.quote(str(out))
    if has_chat_template(out):
        yield f"transformers serve {folder}  # pip install 'transformers[serving]'"
        yield f"transformers chat {folder}  # in another terminal"
    else:
        yield f"python -c {_quoted(_generating(out))}"
    if architecture in _SERVED:
        yield f"vllm serve {folder}"
        if int(config.get("vocab_size") or 0) >= _SMALLEST_VOCABULARY:
            gguf = shlex.quote(str(out.with_name(f"{out.name}.gguf")))
            yield f"python llama.cpp/convert_hf_to_gguf.py {folder} --outfile {gguf}"


def _generating(out: Path) -> str:
    return (
        "from transformers import pipeline; "
        f"write = pipeline('text-generation', {str(out)!r}); "
        "print(write('The', max_new_tokens=40)[0]['generated_text'])"
    )


def _quoted(code: str) -> str:
    """Put code with single quotes into double ones, where the shell allows it."""
    plain = not set(code) & set('"$`\\!')
    return f'"{code}"' if plain else shlex.quote(code)


def _typed(command: str, folder: Path, *words: str) -> str:
    return shlex.join(["mergekit-map", command, str(folder), *words])
