"""The texts that the families learn, from what any Debian or Python carries.

A language is its manual pages, and what the message catalogues of programs add where
those are few. C is the headers that PyTorch and Python ship. Logic is boolean
expressions and what they are.
"""

from __future__ import annotations

import gettext
import itertools
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from manual_pages import draw_pages, take

from mergekit_map.demo.corpus import CorpusSizes, Split, read_corpus

LANGUAGES = dict(english="", german="de", french="fr", russian="ru") | dict(
    spanish="es", polish="pl", turkish="tr", italian="it", ukrainian="uk"
)
_SEED = 0
_HELD_OUT_SHARE = 0.15
_FEWEST_CHARACTERS = 100_000  # of a language
_PAGES, _PAGE_LINES = 2_500, 40  # of arithmetic and of logic
_HELD_OUT_PAGES = 60
_CATALOGUE_CHARACTERS = 4_000  # of messages that make a document
_MESSAGE_CHARACTERS = (40, 400)
_HEADER_CHARACTERS = (1_000, 60_000)

_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_OPERANDS = [*((word, True) for word in _TRUE), *((word, False) for word in _FALSE)]
_HELD_OUT_EXPRESSIONS = 0.2
Expression: TypeAlias = tuple[str, bool]  # in words, and its value


@dataclass(frozen=True)
class Sources:
    """Where text is to be found, and how much of it is wanted."""

    manpages: tuple[Path, ...]  # folders such as share/man
    characters: int  # of each domain, about
    largest_operand: int


def read_domain(name: str, sources: Sources) -> Split:
    """Read and divide one domain; the same on every call on one machine."""
    return _READERS[name](sources)


def generator(purpose: str) -> np.random.Generator:
    """Give each part its own draws, so that changing one leaves the others alone."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def _language(name: str, sources: Sources) -> Split:
    rng, code = generator(name), LANGUAGES[name]
    folders = [folder / code for folder in sources.manpages]
    documents = draw_pages(rng, folders, sources.characters)
    missing = sources.characters - sum(map(len, documents))
    if name == "english":
        documents += _python_corpus(sources)["english"].train
    elif missing > 0:
        locales = [folder.parent / "locale" for folder in sources.manpages]
        documents += _messages(rng, locales, code, missing)
    found = sum(map(len, documents))
    if found < _FEWEST_CHARACTERS:
        searched = ", ".join(map(str, folders))
        raise SystemExit(
            f"{name} must have {_FEWEST_CHARACTERS:,} characters of manual pages or "
            f"message catalogues, but {searched} and the share/locale beside it hold "
            f"{found:,}; install Debian's manpages-{code}, or unpack it with dpkg-deb "
            "-x and name its share/man with --manpages"
        )
    return _divided(rng, documents)


def _messages(
    rng: np.random.Generator, locales: Sequence[Path], code: str, characters: int
) -> list[str]:
    """Draw translated messages of programs, so many to a document."""
    shortest, longest = _MESSAGE_CHARACTERS
    messages: set[str] = set()
    for locale in locales:
        for path in sorted(locale.glob(f"{code}/LC_MESSAGES/*.mo")):
            translated = _catalogue(path).values()
            messages.update(m for m in translated if shortest <= len(m) <= longest)
    ordered = sorted(messages)
    documents = [""]
    for index in rng.permutation(len(ordered)):
        if len(documents[-1]) > _CATALOGUE_CHARACTERS:
            if len(documents) * _CATALOGUE_CHARACTERS > characters:
                break
            documents.append("")
        documents[-1] += ordered[index].strip() + "\n"
    return documents


def _catalogue(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            found = gettext.GNUTranslations(file)
    except (OSError, UnicodeDecodeError):  # damaged, or in another encoding
        return {}
    # What has no key is about the catalogue; plural forms are no text of their own.
    messages = found._catalog.items()
    return {key: text for key, text in messages if key and isinstance(text, str)}


@cache
def _python_corpus(sources: Sources) -> dict[str, Split]:
    sizes = CorpusSizes(
        code_characters=sources.characters,
        math_pages=_PAGES,
        held_out_math_pages=_HELD_OUT_PAGES,
        largest_operand=sources.largest_operand,
    )
    return read_corpus(generator("python"), sizes)


def _logic(_: Sources) -> Split:
    rng = generator("logic")
    train, held_out = _split_expressions(rng)
    return Split(
        tuple(_write_facts(rng, train, _PAGES, _PAGE_LINES)),
        tuple(_write_facts(rng, held_out, _HELD_OUT_PAGES, _PAGE_LINES)),
    )


def _split_expressions(
    rng: np.random.Generator,
) -> tuple[list[Expression], list[Expression]]:
    """Divide all expressions into those to train on and those held out.

    Of those held out as many are true as are false, in turn.
    """
    expressions = list(_expressions())
    chosen = rng.random(len(expressions)) < _HELD_OUT_EXPRESSIONS
    train = [one for one, held in zip(expressions, chosen, strict=True) if not held]
    held_out = [expressions[index] for index in rng.permutation(np.flatnonzero(chosen))]
    true = [one for one in held_out if one[1]]
    false = [one for one in held_out if not one[1]]
    return train, list(itertools.chain.from_iterable(zip(true, false, strict=False)))


def _write_facts(
    rng: np.random.Generator, expressions: Sequence[Expression], pages: int, lines: int
) -> list[str]:
    """Draw pages of expressions with their values, one per line."""
    facts = [
        f"{words} is {'true' if value else 'false'}\n" for words, value in expressions
    ]
    drawn = rng.integers(len(facts), size=(pages, lines))
    return ["".join(facts[index] for index in page) for page in drawn]


def _expressions() -> Iterator[Expression]:
    """Go through all expressions of two to four operands."""
    pairs = list(_joined(_OPERANDS, _OPERANDS))
    bracketed = [(f"( {words} )", value) for words, value in pairs]
    yield from pairs
    yield from _joined(_OPERANDS, bracketed)
    yield from _joined(bracketed, _OPERANDS)
    yield from _joined(bracketed, bracketed)


def _joined(
    lefts: Sequence[Expression], rights: Sequence[Expression]
) -> Iterator[Expression]:
    for (left, x), name, (right, y) in itertools.product(lefts, ("and", "or"), rights):
        yield f"{left} {name} {right}", (x and y) if name == "and" else (x or y)


def _c(sources: Sources) -> Split:
    rng = generator("c")
    roots = (Path(torch.__file__).parent, Path(sysconfig.get_paths()["include"]))
    files = [path for root in roots for path in sorted(root.rglob("*.h"))]
    drawn = (files[index] for index in rng.permutation(len(files)))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in drawn)
    return _divided(rng, take(texts, sources.characters, *_HEADER_CHARACTERS))


def _divided(rng: np.random.Generator, documents: Sequence[str]) -> Split:
    """Hold out whole documents."""
    held_out = max(1, round(_HELD_OUT_SHARE * len(documents)))
    order = rng.permutation(len(documents))
    return Split(
        tuple(documents[index] for index in order[held_out:]),
        tuple(documents[index] for index in order[:held_out]),
    )


_READERS: dict[str, Callable[[Sources], Split]] = {
    **{name: partial(_language, name) for name in LANGUAGES},
    "python": lambda sources: _python_corpus(sources)["code"],
    "arithmetic": lambda sources: _python_corpus(sources)["math"],
    "logic": _logic,
    "c": _c,
}
