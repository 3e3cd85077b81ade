"""Patterns to recognise: textures, directions, written digits, places of photographs.

Each function makes one image of a class, as those of ``vision_drawing`` do. Digits and
photographs come with scikit-learn; what is held out of them is written by others, or
lies elsewhere in the photograph.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from sklearn import datasets
from vision_drawing import SIDE, Pixels, add_noise, dark_colour, light_colour

Levels = NDArray[np.float32]  # (SIDE, SIDE), about 0 to 1

TEXTURES = (
    *("stripes", "checks", "dots", "rings", "waves"),
    *("bricks", "clouds", "grain", "scales", "rays"),
)
DIRECTIONS = tuple(f"{15 * i} degrees" for i in range(12))
DIGITS = tuple(map(str, range(10)))
PLACES = tuple(
    f"{photograph} {row}{column}"
    for photograph in ("china", "flower")
    for row in "123"
    for column in "abcd"
)

_HELD_OUT_DIGITS = 500  # the last ones


def texture(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Make a texture of some scale, direction and colours."""
    period = rng.uniform(5, 11)
    x, y = _turned_plane(rng.uniform(0, math.pi), rng.uniform(0, 64, 2))
    name = TEXTURES[label]
    if name in ("clouds", "grain"):
        blur = period / 4 if name == "clouds" else 0.7
        grey = ndimage.gaussian_filter(rng.standard_normal((SIDE, SIDE)), blur)
        levels = 0.5 + grey / (3 * grey.std())
    elif name in ("rings", "rays"):
        levels = _round_texture(rng, name, period)
    else:
        levels = _woven_texture(name, x / period, y / period)
    return _coloured(rng, np.asarray(levels, np.float32), noise=40)


def direction(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Make a grating in some direction, seen through a round window."""
    angle = math.radians(15 * label + rng.uniform(-6.5, 6.5))
    x, _ = _turned_plane(angle, rng.uniform(0, 64, 2))
    rows, columns = np.indices((SIDE, SIDE)) - SIDE / 2
    middle = rng.uniform(-5, 5, 2)
    distance = np.hypot(rows - middle[0], columns - middle[1])
    window = np.exp(-((distance / rng.uniform(7, 14)) ** 2))
    levels = 0.5 + 0.5 * window * np.sin(2 * np.pi * x / rng.uniform(4, 10))
    return _coloured(rng, levels.astype(np.float32), noise=50)


def digit(rng: np.random.Generator, label: int, held_out: bool) -> Pixels:
    """Show a digit that somebody wrote, in some colours, size and place."""
    written = _written_digits(held_out)[label]
    strokes = Image.fromarray(written[rng.integers(len(written))])
    width, height = map(int, rng.integers(24, 33, 2))
    strokes = strokes.resize((width, height), Image.Resampling.BICUBIC)
    levels = np.zeros((SIDE, SIDE), np.float32)
    top, left = rng.integers(SIDE - height + 1), rng.integers(SIDE - width + 1)
    levels[top : top + height, left : left + width] = np.asarray(strokes)
    return _coloured(rng, levels / 255, noise=40)


def place(rng: np.random.Generator, label: int, held_out: bool) -> Pixels:
    """Cut a piece out of a photograph, from the upper or lower part of a place."""
    photograph, cell = divmod(label, 12)
    row, column = divmod(cell, 4)
    picture = _photographs()[photograph]
    height, width = picture.shape[0] // 3, picture.shape[1] // 4
    # The lower third of a place is held out.
    first, last = (2 * height // 3, height) if held_out else (0, 2 * height // 3)
    side = int(rng.integers(36, min(64, last - first) + 1))
    top = row * height + int(rng.integers(first, last - side + 1))
    left = column * width + int(rng.integers(width - side + 1))
    piece = Image.fromarray(picture[top : top + side, left : left + side])
    if rng.integers(2):
        piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    small = np.asarray(piece.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32)
    return add_noise(rng, small * np.float32(rng.uniform(0.6, 1.2)), noise=12)


def _woven_texture(name: str, x: Levels, y: Levels) -> Levels:
    """Make a texture that repeats; x and y are in periods."""
    if name == "stripes":
        return np.sin(2 * np.pi * x) > 0
    if name == "checks":
        return (np.floor(2 * x) + np.floor(2 * y)) % 2
    if name == "dots":
        return np.hypot(x % 1 - 0.5, y % 1 - 0.5) < 0.3
    if name == "waves":
        return np.sin(2 * np.pi * (x + 0.35 * np.sin(2 * np.pi * y / 1.5))) > 0
    shift = np.floor(2 * y) % 2 / 2
    if name == "bricks":
        return ((x + shift) % 1 > 0.15) & (2 * y % 1 > 0.25)
    return np.hypot((x + shift) % 1 - 0.5, 2 * y % 1) % 0.5 > 0.25  # scales


def _round_texture(rng: np.random.Generator, name: str, period: float) -> Levels:
    rows, columns = np.indices((SIDE, SIDE)) - SIDE / 2
    dy, dx = rng.uniform(-8, 8, 2)
    if name == "rings":
        return np.sin(2 * np.pi * np.hypot(rows - dy, columns - dx) / period) > 0
    turns = np.arctan2(rows - dy, columns - dx) + rng.uniform(0, 2 * np.pi)
    return np.sin(turns * rng.integers(5, 10)) > 0


def _turned_plane(
    angle: float, shift: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the coordinates of every pixel in a plane that is turned and shifted."""
    rows, columns = np.indices((SIDE, SIDE))
    c, s = math.cos(angle), math.sin(angle)
    return c * columns + s * rows + shift[0], c * rows - s * columns + shift[1]


def _coloured(rng: np.random.Generator, levels: Levels, noise: float) -> Pixels:
    """Show levels from 0, some light colour, to 1, some dark one."""
    paper = np.asarray(light_colour(rng), np.float32)
    ink = np.asarray(dark_colour(rng), np.float32)
    return add_noise(rng, paper + levels[..., None] * (ink - paper), noise)


@functools.cache
def _written_digits(held_out: bool) -> list[Pixels]:
    """Give the digits of each class, bytes of (n, 8, 8)."""
    digits = datasets.load_digits()
    part = slice(-_HELD_OUT_DIGITS, None) if held_out else slice(-_HELD_OUT_DIGITS)
    images = (digits.images[part] * (255 / 16)).astype(np.uint8)
    return [images[digits.target[part] == label] for label in range(10)]


@functools.cache
def _photographs() -> list[Pixels]:
    names = ("china.jpg", "flower.jpg")
    return [np.asarray(datasets.load_sample_image(name)) for name in names]
