"""What is built to be installed, and what it needs to be installed with it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import mergekit_map

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mergekit_map"
BUILD = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build a wheel from a copy, as building leaves files behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=without)
    command = [sys.executable, "-W", "ignore", "-c", BUILD, "dist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    files = {
        path.relative_to(ROOT).as_posix(): path
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert len(files) > 100
    assert packed == set(files)
    assert all(wheel.read(name) == path.read_bytes() for name, path in files.items())


@pytest.mark.slow
def test_the_page_of_an_index_leads_to_the_repository(wheel: zipfile.ZipFile) -> None:
    about = metadata(wheel)
    urls = dict(url.split(", ") for url in about.get_all("Project-URL", []))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    there, here = LINK.findall(str(about.get_payload())), LINK.findall(readme)
    assert len(there) == len(here) > 5

    for link, original in zip(there, here, strict=True):
        if original.startswith(("http", "#")):
            assert link == original
            continue
        kind = "raw" if original.endswith(".png") else "blob"
        place = f"{urls['Source']}/{kind}/v{mergekit_map.__version__}/"
        assert link == place + original
        assert (ROOT / original.partition("#")[0]).exists()


@pytest.mark.slow
def test_the_version_stands_in_one_place_and_the_licence_goes_along(
    wheel: zipfile.ZipFile,
) -> None:
    assert metadata(wheel)["Version"] == mergekit_map.__version__
    texts = [(ROOT / name).read_text() for name in ("pyproject.toml", "setup.py")]
    assert not any(mergekit_map.__version__ in text for text in texts)
    (name,) = (name for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text().partition("\ntest = [")[0]
    declared = set(map(normal, re.findall(r'^    "([\w.-]+)[<>=]', project, re.M)))
    found = {name for path in PACKAGE.rglob("*.py") for name in imported(path)}
    packages = found - sys.stdlib_module_names - {"mergekit_map"}
    brought_by = packages_distributions()

    missing = {
        package
        for package in packages
        if declared.isdisjoint(map(normal, brought_by.get(package, [package])))
    }

    assert len(packages) > 20
    assert not missing
