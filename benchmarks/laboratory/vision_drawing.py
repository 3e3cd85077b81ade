"""Drawn things to recognise: letters, shapes, signs, dots to count, and colours.

Each function draws one image of a class, bytes of (SIDE, SIDE, 3). Everything but the
class is drawn at random, and there is noise, so that no task is learned in full.
"""

from __future__ import annotations

import colorsys
import functools
import math
import string
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Pixels = NDArray[np.uint8]
Point = tuple[float, float]
Colour = tuple[int, int, int]

SIDE = 32
_FINE = 4  # drawn so much larger, then reduced: smooth edges
_CANVAS = SIDE * _FINE

LETTERS = tuple(string.ascii_uppercase)
SHAPES = (
    *("circle", "ring", "half disc", "triangle", "square"),
    *("pentagon", "hexagon", "star", "cross", "arrow"),
)
COUNTS = tuple(map(str, range(1, 9)))
COLOURS = (
    *("red", "orange", "yellow", "lime", "green"),
    *("cyan", "azure", "blue", "violet", "pink"),
)
PLATES = ("red circle", "red triangle", "blue disc", "yellow diamond")
SYMBOLS = ("left", "right", "ahead", "bar")
SIGNS = tuple(f"{plate}, {symbol}" for plate in PLATES for symbol in SYMBOLS)

_FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *(
        "STIXGeneral",
        "STIXGeneralBol",
        "STIXGeneralItalic",
        "cmr10",
        "cmss10",
        "cmtt10",
    ),
)


def letter(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Draw a capital in some font, turned a little."""
    ground, ink = light_colour(rng), dark_colour(rng)
    image, draw = _canvas(ground)
    font = _font(_FONTS[rng.integers(len(_FONTS))], int(rng.integers(84, 121)))
    draw.text(_middle(rng, 8), LETTERS[label], fill=ink, font=font, anchor="mm")
    turned = image.rotate(
        rng.uniform(-12, 12), Image.Resampling.BILINEAR, fillcolor=ground
    )
    return _finish(rng, turned, noise=30)


def shape(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Draw a filled shape, turned a little."""
    ground, ink = light_colour(rng), dark_colour(rng)
    image, draw = _canvas(ground)
    centre, radius = _middle(rng, 10), rng.uniform(32, 54)
    angle = rng.uniform(-0.35, 0.35)
    name = SHAPES[label]
    box = _box(centre, radius)
    if name == "circle":
        draw.ellipse(box, fill=ink)
    elif name == "ring":
        draw.ellipse(box, outline=ink, width=round(radius / 3))
    elif name == "half disc":
        start = math.degrees(angle)
        draw.pieslice(box, start, start + 180, fill=ink)
    else:
        outline = _turned(_outline(name), angle)
        draw.polygon(_placed(outline, centre, radius), fill=ink)
    return _finish(rng, image, noise=30)


def dots(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Draw dots of any size that do not touch, as many as the class says."""
    ground = light_colour(rng)
    image, draw = _canvas(ground)
    placed: list[tuple[Point, float]] = []
    while len(placed) <= label:
        radius = rng.uniform(7, 16)
        centre = (_inside(rng, radius), _inside(rng, radius))
        if all(math.dist(centre, c) > radius + r + 5 for c, r in placed):
            placed.append((centre, radius))
            draw.ellipse(_box(centre, radius), fill=dark_colour(rng))
    return _finish(rng, image, noise=20)


def colour(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Draw a shape in a shade of a colour, others around it in any."""
    image, draw = _canvas(_any_colour(rng))
    for _ in range(6):
        outline = _turned(_outline("square"), rng.uniform(0, 2 * math.pi))
        place = (rng.uniform(0, _CANVAS), rng.uniform(0, _CANVAS))
        patch = _placed(outline, place, rng.uniform(10, 30))
        draw.polygon(patch, fill=_any_colour(rng))
    outline = _turned(_outline("hexagon"), rng.uniform(0, 2 * math.pi))
    hue = (label + rng.uniform(-0.45, 0.45)) / len(COLOURS)
    ink = _from_hsv(hue % 1, rng.uniform(0.35, 1), rng.uniform(0.45, 1))
    patch = _placed(outline, _middle(rng, 14), rng.uniform(26, 44))
    draw.polygon(patch, fill=ink)
    return _finish(rng, image, noise=30)


def sign(rng: np.random.Generator, label: int, _held_out: bool) -> Pixels:
    """Draw a traffic sign in any light: a plate with a symbol."""
    plate, symbol = divmod(label, len(SYMBOLS))
    image, draw = _canvas(_any_colour(rng))
    centre, radius = _middle(rng, 14), rng.uniform(34, 54)
    ink = _draw_plate(draw, PLATES[plate], centre, radius)
    name = SYMBOLS[symbol]
    turn = {"left": math.pi, "right": 0.0, "ahead": -math.pi / 2, "bar": 0.0}[name]
    outline = _turned(_outline("bar" if name == "bar" else "arrow"), turn)
    # A triangle is widest below its middle.
    down = 0.15 * radius if "triangle" in PLATES[plate] else 0.0
    place = (centre[0], centre[1] + down)
    draw.polygon(_placed(outline, place, 0.48 * radius), fill=ink)
    image = image.rotate(rng.uniform(-14, 14), Image.Resampling.BILINEAR)
    shade = rng.uniform(0.3, 1.0)
    return _finish(rng, image.point(lambda level: int(level * shade)), noise=30)


def _draw_plate(
    draw: ImageDraw.ImageDraw, plate: str, centre: Point, radius: float
) -> Colour:
    """Draw an empty sign; gives the colour of its symbol."""
    red, blue, white = (200, 20, 30), (20, 70, 190), (245, 245, 245)
    if plate == "red circle":
        draw.ellipse(_box(centre, radius), fill=red)
        draw.ellipse(_box(centre, 0.75 * radius), fill=white)
    elif plate == "red triangle":
        outline = _turned(_outline("triangle"), -math.pi / 2)
        draw.polygon(_placed(outline, centre, 1.15 * radius), fill=red)
        draw.polygon(_placed(outline, centre, 0.75 * radius), fill=white)
    elif plate == "blue disc":
        draw.ellipse(_box(centre, radius), fill=blue)
        return white
    else:
        draw.polygon(_placed(_outline("square"), centre, radius), fill=white)
        inner = _placed(_outline("square"), centre, 0.82 * radius)
        draw.polygon(inner, fill=(240, 190, 20))
    return (20, 20, 20)


def _outline(name: str) -> list[Point]:
    """Give the corners of a shape that fits into a circle of radius 1."""
    sides = {"triangle": 3, "square": 4, "pentagon": 5, "hexagon": 6}
    if name in sides:
        return [_on_circle(i / sides[name]) for i in range(sides[name])]
    if name == "star":
        radii = (1.0, 0.42) * 5
        return [
            (r * x, r * y) for i, r in enumerate(radii) for x, y in [_on_circle(i / 10)]
        ]
    if name == "bar":
        return [(-0.9, -0.25), (0.9, -0.25), (0.9, 0.25), (-0.9, 0.25)]
    if name == "arrow":
        top = [(-0.9, -0.22), (0.1, -0.22), (0.1, -0.65), (0.95, 0.0)]
        return [*top, *((x, -y) for x, y in top[-2::-1])]
    # A cross: one quarter of it, four times.
    quarter = [(0.95, -0.28), (0.95, 0.28), (0.28, 0.28)]
    return [p for i in range(4) for p in _turned(quarter, i * math.pi / 2)]


def _on_circle(share: float) -> Point:
    return math.cos(2 * math.pi * share), math.sin(2 * math.pi * share)


def _turned(outline: list[Point], angle: float) -> list[Point]:
    c, s = math.cos(angle), math.sin(angle)
    return [(c * x - s * y, s * x + c * y) for x, y in outline]


def _placed(outline: list[Point], centre: Point, radius: float) -> list[Point]:
    return [(centre[0] + radius * x, centre[1] + radius * y) for x, y in outline]


def _box(centre: Point, radius: float) -> tuple[float, float, float, float]:
    x, y = centre
    return x - radius, y - radius, x + radius, y + radius


def _middle(rng: np.random.Generator, spread: float) -> Point:
    x, y = _CANVAS / 2 + rng.uniform(-spread, spread, 2)
    return float(x), float(y)


def _inside(rng: np.random.Generator, radius: float) -> float:
    return rng.uniform(radius + 2, _CANVAS - radius - 2)


def _canvas(ground: Colour) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (_CANVAS, _CANVAS), ground)
    return image, ImageDraw.Draw(image)


@functools.cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    # matplotlib brings its fonts along, so they are the same on every machine.
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"{name}.ttf", size)


def _any_colour(rng: np.random.Generator) -> Colour:
    red, green, blue = map(int, rng.integers(0, 256, 3))
    return red, green, blue


def light_colour(rng: np.random.Generator) -> Colour:
    """Draw the colour of some paper."""
    red, green, blue = map(int, rng.integers(150, 256, 3))
    return red, green, blue


def dark_colour(rng: np.random.Generator) -> Colour:
    """Draw the colour of some ink."""
    red, green, blue = map(int, rng.integers(0, 106, 3))
    return red, green, blue


def _from_hsv(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def _finish(rng: np.random.Generator, image: Image.Image, noise: float) -> Pixels:
    small = np.asarray(image.reduce(_FINE), dtype=np.float32)
    return add_noise(rng, small, noise)


def add_noise(
    rng: np.random.Generator, image: NDArray[np.float32], noise: float
) -> Pixels:
    """Add noise of a standard deviation up to ``noise`` to levels of 0 to 255."""
    drawn = rng.standard_normal(image.shape, dtype=np.float32)
    noisy = image + np.float32(rng.uniform(0.3, 1) * noise) * drawn
    return noisy.clip(0, 255).astype(np.uint8)
