"""The images of the laboratory's tasks: drawn by class, kept for training or held out.

Images are bytes of (n, 3, SIDE, SIDE), in an order without meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import vision_drawing as drawing
import vision_patterns as patterns
from torch import Tensor
from vision_drawing import Pixels

_SEED = 0


@dataclass(frozen=True)
class Source:
    """What is to be told apart, and what makes an image of a class."""

    classes: tuple[str, ...]
    # Given a generator, a class, and whether the image is held out.
    draw: Callable[[np.random.Generator, int, bool], Pixels]


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one task, and the class of each (n,)."""

    pixels: Tensor
    labels: Tensor


SOURCES = {
    "letters": Source(drawing.LETTERS, drawing.letter),
    "textures": Source(patterns.TEXTURES, patterns.texture),
    "digits": Source(patterns.DIGITS, patterns.digit),
    "signs": Source(drawing.SIGNS, drawing.sign),
    "counting": Source(drawing.COUNTS, drawing.dots),
    "directions": Source(patterns.DIRECTIONS, patterns.direction),
    "colours": Source(drawing.COLOURS, drawing.colour),
    "shapes": Source(drawing.SHAPES, drawing.shape),
    "places": Source(patterns.PLACES, patterns.place),
}


def generator(purpose: str) -> np.random.Generator:
    """Give each part its own draws, so that changing one leaves the others alone."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def draw_images(
    task: str, count: int, *, held_out: bool, again: bool = False
) -> Images:
    """Draw images of a task, of all classes alike; ``again``, others."""
    source = SOURCES[task]
    purpose = "held out" if held_out else "to train"
    rng = generator(f"{task}, {purpose}" + (", again" if again else ""))
    labels = rng.permutation(np.arange(count) % len(source.classes))
    pixels = np.stack([source.draw(rng, int(label), held_out) for label in labels])
    channels_first = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return Images(channels_first, torch.from_numpy(labels))
