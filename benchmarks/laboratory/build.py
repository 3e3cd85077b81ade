"""Train a family of models, from text that any Debian or Python installation has.

    python benchmarks/laboratory/build.py FAMILY FOLDER [--size SIZE] [--manpages DIR]

FAMILY is one of

- ``languages``: eight fine-tunes on manual pages in eight languages (Debian's packages
  manpages-de, -fr, -ru, -es, -pl, -tr, -it and -uk; DIR, by default /usr/share/man, has
  a folder per language; where there are few pages, the message catalogues in
  share/locale beside it are read too);
- ``mixed``: German, arithmetic, Python, C, logic and English;
- ``lora``: the base of ``mixed``, and the same six as LoRA adapters of it.

The base has learnt all domains, and each fine-tune leans towards one. Each is measured
by the loss on held-out text. Sizes: demo (0.3 M parameters), 5m, 20m.

FOLDER/FAMILY-SIZE gets the models and, last, ``family.json``, which says what they do.
A model that is finished is not trained again; same machine, same seed, same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import click
import transformers
from family import Family, load
from sizes import SIZES
from text_family import PLANS, build_text_family


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=tuple(PLANS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=tuple(SIZES), default="demo")
    parser.add_argument("--manpages", type=Path, nargs="+", metavar="DIR")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    root = arguments.folder.expanduser().resolve()
    manpages = arguments.manpages or [Path("/usr/share/man")]
    size = SIZES[arguments.size]
    show(
        load(build_text_family(arguments.family, root, arguments.size, size, manpages))
    )


def show(family: Family) -> None:
    """Print what the models of a family do."""
    facts: Mapping[str, Mapping[str, object]] = family.facts
    click.echo(f"{family.name}-{family.size}: {family.parameters:,} parameters")
    names = [model.name for model in family.models]
    click.echo(f"{'losses':>10}" + "".join(f"{name[:8]:>9}" for name in names))
    for name, losses in facts["losses"].items():
        ratio = facts["norm_ratios"].get(name)
        shown = "" if ratio is None else f"   ratio {ratio:.1%}"
        click.echo(f"{name:>10}" + "".join(f"{x:9.3f}" for x in losses) + shown)
    total = sum(family.facts["seconds"].values())
    click.echo(f"trained for {total / 60:.1f} minutes")


if __name__ == "__main__":
    main()
