"""The screens: the front as a list, the current point beside it, texts and forms.

Merging and chat are actions of the caller, outside of the screens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Label, Static

from mergekit_map.browse.view import (
    FrontList,
    View,
    answer_text,
    compared_text,
    gains_text,
    help_text,
    rivals,
    weights_text,
    wish_of,
)
from mergekit_map.config.problems import values_by_task
from mergekit_map.errors import MapError
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.utils.text import printable


@dataclass(frozen=True)
class ExitAction:
    """An action requested outside of the screen, on the current point of a view."""

    view: View
    out: str | None = None  # the folder to merge into; None: chat


WORKING = " working ..."
_BESIDE = 110  # columns from which the point is shown beside the list


class Browser(App[ExitAction]):
    """The program that shows the front of a finished search."""

    TITLE = "mergekit-map browse"
    ENABLE_COMMAND_PALETTE = False
    # Key, action, word in the footer, sentence of the help.
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"sort({n})", show=False) for n in range(10)),
        Binding("l", "limits", "limits", tooltip="set limits, or remove them"),
        Binding("c", "compare", "compare", tooltip="compare two merges"),
        Binding("v", "meaning", "findings", tooltip="the answer for this point"),
        Binding("s", "save", "save", tooltip="choose this point, as select does"),
        Binding("m", "merge", "merge", tooltip="write the merge, as merge does"),
        Binding("t", "talk", "talk", tooltip="chat with the merge, in memory"),
        Binding("question_mark", "help", "help", key_display="?", tooltip="this help"),
        Binding("q", "quit", "quit", tooltip="quit"),
    ]
    CSS = """
    #title { height: 1; text-style: bold; background: $primary; color: $text; }
    #body { height: 1fr; layout: vertical; }
    #list { height: 1fr; min-height: 6; scrollbar-size-vertical: 1; }
    #about { height: auto; max-height: 60%; }
    #weights, #point { padding: 0 1; }
    .beside #body { layout: horizontal; }
    .beside #list { width: 1fr; }
    .beside #about { height: 1fr; max-height: 100%; width: 1fr; }
    """

    def __init__(self, folder: RunFolder, view: View, name: str) -> None:
        """Create the program for a view of a run folder, and the search's name."""
        super().__init__()
        self.run_folder, self.view, self._called = folder, view, printable(name)
        self._wish = wish_of(view.front)

    def compose(self) -> ComposeResult:
        """Lay out list, point, and lines above and below them."""
        yield Static(id="title")
        with Container(id="body"):
            yield FrontList(id="list", cursor_type="row", zebra_stripes=True)
            with VerticalScroll(id="about"):
                yield Static(id="weights")
                yield Static(id="point")
        yield Footer(compact=True)

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new width."""
        self.screen_stack[0].set_class(event.size.width >= _BESIDE, "beside")
        self.call_after_refresh(self._show_all)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the highlighted point."""
        if event.row_key is not None and event.row_key.value is not None:
            at = int(event.row_key.value)
            if at != self.view.at:
                self.view = self.view.moved(at)
                self._show_point()

    def _show_all(self) -> None:
        self.screen_stack[0].query_one(FrontList).show(self.view)
        self._show_point()

    def _show_point(self) -> None:
        view, screen = self.view, self.screen_stack[0]
        screen.query_one("#weights", Static).update(weights_text(view.point))
        screen.query_one("#point", Static).update(gains_text(view))
        title = f" point {view.at} of {len(view.front.points)}"
        title += ", chosen" * (view.at == view.front.selected)
        title += ", misses a limit" * (view.at in view.missing)
        title += ", not saved" * (view.at >= view.saved)
        screen.query_one("#title", Static).update(Text(f"{title} · {self._called}"))
        # The text of the point may leave less room for the list.
        rows = screen.query_one(FrontList)
        self.call_after_refresh(lambda: rows.move_cursor(row=rows.cursor_row))

    def action_sort(self, number: int) -> None:
        """Sort by a task, counted from 1; by 0 in the order along the front."""
        tasks = list(self.view.front.tasks)
        if number <= len(tasks):
            self.view = self.view.sorted(tasks[number - 1] if number else None)
            self._show_all()

    def action_compare(self) -> None:
        """Show the current point beside others, one after the other."""
        others, view = rivals(self.view), self.view
        page = ReadingPage(lambda n: compared_text(view, *others[n]), len(others))
        self.push_screen(page)

    def action_meaning(self) -> None:
        """Show the answer for the current point."""
        self.push_screen(ReadingPage(lambda _: answer_text(self.view)))

    def action_help(self) -> None:
        """Show the keys."""
        bound = [b for b in self.BINDINGS if isinstance(b, Binding) and b.tooltip]
        keys = [
            ("1-9", "sort by a task, the best point first; 0: along the front"),
            *((b.key_display or b.key, b.tooltip) for b in bound),
        ]
        self.push_screen(ReadingPage(lambda _: help_text(keys)))

    @work
    async def action_limits(self) -> None:
        """Ask for limits and preferences, and go to the point that they choose."""
        about = "The best point within the limits is shown; nothing is written."
        task = next(iter(self.view.front.tasks))
        prompts = {
            "require": f"limits, such as {task}=95%",
            "prefer": f"preference, such as {task}=2",
            "not_worse_than": "not worse than, such as base,soup",
        }
        answer: Mapping[str, str] | None = self._wish
        while about and answer is not None:
            fields = [(key, text, answer[key]) for key, text in prompts.items()]
            answer = await self.push_screen_wait(Form(about, fields))
            if answer is not None:
                self._wish, said = answer, "Point {at} is shown. Press s to save it."
                about = await self._take(said, self._wished, answer)

    @work
    async def action_save(self) -> None:
        """Choose the current point, as the command select; ask if it misses a limit."""
        at, choice = self.view.at, self.view.asked
        if at in self.view.missing:
            about = f"Point {at} misses a limit. Choose it all the same?"
            if await self.push_screen_wait(Form(about)) is None:
                return
        recipe = self.run_folder.chosen_recipe
        said = f"Saved: point {{at}} is the chosen merge, and {recipe} its recipe."
        if reason := await self._take(said, self._saved, choice):
            self.push_screen(ReadingPage(lambda _: Text(reason)))
        self._wish = wish_of(self.view.front)

    def _wished(self, answer: Mapping[str, str]) -> View:
        """Go to the point of the given limits and preferences."""
        from mergekit_map.workflows.select import fitted_surrogates

        names = [name for name in ("require", "prefer") if answer[name]]
        choice: dict[str, Any] = {name: values_by_task(answer[name]) for name in names}
        if others := answer["not_worse_than"].replace(",", " ").split():
            choice["not_worse_than"] = others
        surrogates = fitted_surrogates(self.run_folder, self.view.front)
        return self.view.wished(choice, surrogates)

    def _saved(self, choice: Mapping[str, Any]) -> View:
        """Choose a point, as the command select."""
        # Here, as the screen is there sooner without it.
        from mergekit_map.workflows.select import select_point

        return View.of(select_point(self.run_folder.path, **choice).front)

    async def _take(self, said: str, make: Callable[..., View], *given: object) -> str:
        """Show the view that a thread makes, or return the reason for its failure."""
        self.screen_stack[0].query_one("#title", Static).update(WORKING)
        await self.push_screen(ModalScreen())  # which takes the keys meanwhile
        try:
            view = await asyncio.to_thread(make, *given)
            self.view = view.sorted(self.view.sorted_by)
        except (MapError, OSError) as error:
            self._show_point()
            return printable(str(error))
        finally:
            self.pop_screen()
        self.notify(printable(said.replace("{at}", str(self.view.at))), markup=False)
        self._show_all()
        return ""

    def action_talk(self) -> None:
        """Chat with the merge, outside of the screen."""
        self.exit(ExitAction(self.view))

    @work
    async def action_merge(self) -> None:
        """Ask for the folder, and merge outside of the screen."""
        about = f"Point {self.view.at} is chosen, merged and measured."
        fields = [("out", "folder for the merge", f"{self._called}-{self.view.at}")]
        answer = await self.push_screen_wait(Form(about, fields))
        if answer and answer["out"]:
            self.exit(ExitAction(self.view, answer["out"]))


class ReadingPage(ModalScreen[None]):
    """One or several texts, each of which fills the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "dismiss", "back"),
        ("left", "turn(-1)", "previous"),
        ("right", "turn(1)", "next"),
    ]
    DEFAULT_CSS = """
    ReadingPage { background: $background; }
    ReadingPage #keys { dock: bottom; color: $text-muted; height: auto; }
    """

    def __init__(self, write: Callable[[int], RenderableType], count: int = 1) -> None:
        super().__init__()
        self._write, self._count, self._place = write, count, 0

    def compose(self) -> ComposeResult:
        """Lay out the text and its keys; the arrow keys scroll."""
        with VerticalScroll(id="page"):
            yield Static(self._write(0), id="text")
        turning = "←→ next · " if self._count > 1 else ""
        yield Static(Text(f"{turning}↑↓ scroll · esc back"), id="keys")

    def action_turn(self, step: int) -> None:
        """Show another of the texts."""
        self._place = (self._place + step) % self._count
        self.query_one("#text", Static).update(self._write(self._place))


class Form(ModalScreen[Mapping[str, str] | None]):
    """Questions of a line each; enter answers. Without questions, enter agrees."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss(None)", "back"),
        ("enter", "answer", "go"),
    ]
    DEFAULT_CSS = """
    Form { align: center middle; }
    Form #box { width: 90%; max-width: 90; height: auto; max-height: 95%;
        border: round $primary; padding: 0 1; background: $surface; }
    Form Label { width: 100%; height: auto; }
    Form Input { background: $boost; margin-bottom: 1; }
    Form #keys { color: $text-muted; }
    """

    def __init__(self, about: str, fields: Iterable[tuple[str, str, str]] = ()) -> None:
        """Create the questions from fields: a name, a prompt and a default."""
        super().__init__()
        self._about, self._fields = about, fields

    def compose(self) -> ComposeResult:
        """Lay out the questions; the first has the focus."""
        with Vertical(id="box"):
            yield Label(Text(self._about))
            for name, prompt, given in self._fields:
                yield Label(Text(prompt, style="bold"))
                yield Input(value=given, id=name, compact=True)
            keys = "enter: go · tab: next line" if self._fields else "enter: yes"
            yield Label(Text(f"{keys} · esc: back"), id="keys")

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Answer, from a line."""
        self.action_answer()

    def action_answer(self) -> None:
        """Answer with what the lines hold."""
        self.dismiss({x.id or "": x.value.strip() for x in self.query(Input)})
