"""The recipes of a run folder, with the present paths of their models."""

from __future__ import annotations

from typing import Any

from mergekit_map.errors import ArtifactError
from mergekit_map.merging.recipe import Recipes
from mergekit_map.models.references import map_references
from mergekit_map.results.front import Front
from mergekit_map.results.recipe_rendering import documents, recipe_comments
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.utils.files import write_atomically
from mergekit_map.workflows.select import Selection


def write_recipes(recipes: Recipes, front: Front, run: RunFolder) -> None:
    """Write the recipe of each point of a front, and that of the chosen one."""
    for index, point in enumerate(front.points):
        command = recipes.command(run.recipe(index), "OUT")
        comments = [*recipe_comments(front, index), f"Merge it with: {command}"]
        text = recipes.text(point.coefficients, comments)
        write_atomically(run.recipe(index), text)
        if index == front.selected:
            write_atomically(run.chosen_recipe, f"# {front.reason}\n{text}")
    run.remove_recipes(len(front.points))


def present_recipe(recipes: Recipes, selection: Selection, run: RunFolder) -> str:
    """Return the recipe of a selection, with the present paths of its models.

    Its models are compared by their order, as their earlier paths are not recorded.

    Raises:
        ArtifactError: what the run folder has is not the recipe of the point.
    """
    lines = selection.recipe.splitlines(keepends=True)
    given = "".join(line for line in lines if not line.startswith("#"))
    now = recipes.text(selection.point.coefficients, ())
    if given != now and _numbered(given) != _numbered(now):
        raise ArtifactError(
            f"{run.recipe(selection.index)} is not the recipe of point "
            f"{selection.index}: its coefficients give another one; search again, or "
            "merge the recipe itself with mergekit-yaml if it is what you want"
        )
    return "".join(line for line in lines if line.startswith("#")) + now


def _numbered(recipe: str) -> list[Any] | None:
    """Read a recipe with numbers for its models; None for no recipe."""
    numbers: dict[str, str] = {}

    def number(model: str) -> str:
        return numbers.setdefault(model, str(len(numbers)))

    try:
        return [map_references(part, number) for part in documents(recipe)]
    except ValueError:
        return None
