"""Take the pictures of the report, in a real browser: those of the docs, and more.

    mergekit-map demo --out mergekit-map-demo
    mergekit-map search two.yml two     # demo.yml with merge_method: ties
    python benchmarks/pictures/make_report_pictures.py mergekit-map-demo/run two docs

writes, with the home directory as ``~``,

- ``report-1280.png``: the page from its top to the point and its recipe;
- ``front.png``, the front as the search drew it;

and with ``--all FOLDER``, to be looked at: the whole page at both widths, light and
dark, and both searches laid over one another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from mergekit_map.report.overlay import write_fronts_report
from mergekit_map.report.page import write_report

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from browser import open_browser, watched_page

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
LAST = "section.point"  # the part of the page that a picture in the docs ends with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a finished search")
    parser.add_argument("two", type=Path, help="that of another one of its tasks")
    parser.add_argument("out", type=Path, help="where the pictures go")
    parser.add_argument("--all", type=Path, help="where pictures to be looked at go")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.run / "front.png", out / "front.png")
    with tempfile.TemporaryDirectory() as folder:
        runs = [r.resolve() for r in (arguments.run, arguments.two)]
        page, fronts = pages_without_paths(runs, Path(folder))
        picture = out / f"report-{WIDTHS[0]}.png"
        take_picture(page, WIDTHS[0], SCHEMES[0], picture, LAST)
        if arguments.all is not None:
            take_all(page, fronts, arguments.all.resolve())


def take_all(page: Path, fronts: Path, out: Path) -> None:
    """Take the whole of both pages in all forms."""
    out.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for scheme in SCHEMES:
            for path in (page, fronts):
                name = f"{path.stem}-{width}-{scheme}-whole.png"
                take_picture(path, width, scheme, out / name)


def pages_without_paths(runs: list[Path], folder: Path) -> list[Path]:
    """Write reports of copies that name no folder of this machine: of one, of all."""
    names = [Path(run.parent.name, run.name) for run in runs]
    for run, name in zip(runs, names, strict=True):
        shutil.copytree(run, folder / name)
        recipes = (folder / name).glob("recipes/*.yml")
        for path in (*recipes, folder / name / "recipe.yml"):
            text = path.read_text(encoding="utf-8")
            text = text.replace(f"{run.parent}/", f"{run.parent.name}/")
            path.write_text(text.replace(str(Path.home()), "~"), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        one, every = write_report(names[0]).page, write_fronts_report(names)
        return [one.resolve(), every.resolve()]
    finally:
        os.chdir(before)


@contextmanager
def drawn(path: Path, width: int, scheme: str) -> Iterator[Page]:
    """Open a page that is drawn to its end, and pass nothing that it complains of."""
    ready = "#front-chart .main-svg"
    with (
        open_browser() as browser,
        watched_page(browser, path, width, ready, color_scheme=scheme) as watched,
    ):
        yield watched.page
        if watched.problems or watched.fetched:
            raise RuntimeError(f"{path}: {watched.problems} {watched.fetched}")


def take_picture(
    page: Path, width: int, scheme: str, path: Path, last: str | None = None
) -> None:
    """Take a page down to its last part that is wanted."""
    with drawn(page, width, scheme) as shown:
        box = shown.locator(last or "body").bounding_box()
        if box is None:
            raise RuntimeError(f"{page} has no {last}")
        height = box["y"] + box["height"] + 12
        clip = {"x": 0.0, "y": 0.0, "width": float(width), "height": height}
        shown.screenshot(path=path, full_page=True, clip=clip)
    saved(path)


def saved(path: Path) -> None:
    Image.open(path).quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
