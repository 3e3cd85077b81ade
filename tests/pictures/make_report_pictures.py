"""Take the pictures that the README shows, those of the report in a real browser.

    mergekit-map demo --out mergekit-map-demo
    mergekit-map search two.yml two     # demo.yml with code_loss and math_loss alone
    python tests/pictures/make_report_pictures.py mergekit-map-demo/run two docs

writes ``docs/report-1280.png`` and ``docs/report-400.png``: the page at both widths,
from its top to the chart of all tasks, with the home directory as ``~``; and
``docs/front.png``, the front of two tasks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

from mergekit_map.publish.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "publish"))
from browser import open_browser, watched_page

WIDTHS = (1280, 400)
LAST = "#all-tasks"  # the part of the page that a picture ends with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a finished search")
    parser.add_argument("two", type=Path, help="that of one of two tasks")
    parser.add_argument("out", type=Path, help="where the pictures go")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.two / "front.png", out / "front.png")
    run = arguments.run.resolve()
    with tempfile.TemporaryDirectory() as folder:
        page = report_without_paths(run, Path(folder))
        for width in WIDTHS:
            take_picture(page, width, out / f"report-{width}.png")


def report_without_paths(run: Path, folder: Path) -> Path:
    """Write the report of a copy that names no folder of this machine."""
    name = Path(run.parent.name, run.name)
    shutil.copytree(run, folder / name)
    for path in (*(folder / name).glob("recipes/*.yml"), folder / name / "recipe.yml"):
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"{run.parent}/", f"{run.parent.name}/")
        path.write_text(text.replace(str(Path.home()), "~"), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return write_report(name).page.resolve()
    finally:
        os.chdir(before)


def take_picture(page: Path, width: int, path: Path) -> None:
    with open_browser() as browser, watched_page(browser, page, width) as watched:
        box = watched.page.locator(LAST).bounding_box()
        if box is None or watched.problems or watched.fetched:
            raise RuntimeError(f"{page}: {watched.problems} {watched.fetched}")
        height = box["y"] + box["height"] + 12
        clip = {"x": 0.0, "y": 0.0, "width": float(width), "height": height}
        watched.page.screenshot(path=path, full_page=True, clip=clip)
    Image.open(path).quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} kB")  # noqa: T201


if __name__ == "__main__":
    main()
