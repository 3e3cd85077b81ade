"""Save a language model of the Hub with pickled weights as safetensors.

For math_code.yml. The folder has the model's own id as its path, so that a recipe
finds it under that name before it looks at the Hub.
"""

from __future__ import annotations

from pathlib import Path

import click
import torch
import transformers


@click.command()
@click.argument("model")
@click.option("--dtype", default="bfloat16", show_default=True, help="Of the weights.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder to save it in  [default: its id, below the working directory]",
)
def main(model: str, dtype: str, out: Path | None) -> None:
    """Load MODEL from the Hub and save it as safetensors."""
    folder = out or Path(model)
    if folder.exists():
        raise click.UsageError(f"{folder} is there already; remove it to save it again")
    # transformers reads pickles as weights only, which cannot run code.
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        model, dtype=vars(torch)[dtype]
    )
    loaded.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    click.echo(f"saved {folder}")


if __name__ == "__main__":
    main()
