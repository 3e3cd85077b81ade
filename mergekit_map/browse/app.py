"""The screens: the front as a list, the current point beside it, and texts.

Merging and chat are actions of the caller, outside of the screens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rich.console import RenderableType
from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from mergekit_map.browse.view import FrontList, View, answer_text, gains_text, help_text
from mergekit_map.errors import MapError
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.utils.text import printable


@dataclass(frozen=True)
class ExitAction:
    """An action requested outside of the screen, on the current point of a view."""

    view: View
    kind: Literal["merge", "chat"]


WORKING = " working ..."
_BESIDE = 110  # columns from which the point is shown beside the list


class Browser(App[ExitAction]):
    """The program that shows the front of a finished search."""

    ENABLE_COMMAND_PALETTE = False
    # Key, action, word in the footer, sentence of the help.
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"sort({n})", show=False) for n in range(10)),
        Binding("v", "meaning", "findings", tooltip="the answer for this point"),
        Binding("s", "save", "save", tooltip="choose this point, as select does"),
        Binding("m", "end('merge')", "merge", tooltip="write the merge, as merge does"),
        Binding("t", "end('chat')", "talk", tooltip="chat with the merge, in memory"),
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

    def __init__(self, folder: RunFolder, view: View) -> None:
        super().__init__()
        self.run_folder = folder
        self.view = view
        self._run_name = printable(folder.path.resolve().name)

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
            index = int(event.row_key.value)
            if index != self.view.at:
                self.view = replace(self.view, at=index)
                self._show_point()

    def _show_all(self) -> None:
        self.screen_stack[0].query_one(FrontList).show(self.view)
        self._show_point()

    def _show_point(self) -> None:
        view, screen = self.view, self.screen_stack[0]
        screen.query_one("#weights", Static).update(Text(view.point.weights, "bold"))
        screen.query_one("#point", Static).update(gains_text(view))
        title = f" point {view.at} of {len(view.front.points)}"
        if view.at == view.front.selected:
            title += ", chosen"
        screen.query_one("#title", Static).update(Text(f"{title} · {self._run_name}"))
        # The text of the point may leave less room for the list.
        rows = screen.query_one(FrontList)
        self.call_after_refresh(lambda: rows.move_cursor(row=rows.cursor_row))

    def action_sort(self, number: int) -> None:
        """Sort by a task, counted from 1; by 0 in the order along the front."""
        tasks = list(self.view.front.tasks)
        if number <= len(tasks):
            task = tasks[number - 1] if number else None
            self.view = replace(self.view, sorted_by=task)
            self._show_all()

    def action_meaning(self) -> None:
        """Show the answer for the current point."""
        self.push_screen(ReadingPage(answer_text(self.view)))

    def action_help(self) -> None:
        """Show the keys."""
        keys = [("1-9", "sort by a task, the best point first; 0: along the front")]
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.tooltip:
                keys.append((binding.key_display or binding.key, binding.tooltip))
        self.push_screen(ReadingPage(help_text(keys)))

    @work
    async def action_save(self) -> None:
        """Choose the current point, as the command select."""
        self.screen_stack[0].query_one("#title", Static).update(WORKING)
        await self.push_screen(ModalScreen())  # which takes the keys meanwhile
        failure = None
        try:
            view = await asyncio.to_thread(self._save_choice, self.view.at)
            self.view = replace(view, sorted_by=self.view.sorted_by)
        except (MapError, OSError) as error:
            failure = Text(printable(str(error)))
        self.pop_screen()
        self._show_all()
        if failure is not None:
            self.push_screen(ReadingPage(failure))
            return
        at, recipe = self.view.at, self.run_folder.chosen_recipe
        text = f"Saved: point {at} is the chosen merge, and {recipe} its recipe."
        self.notify(printable(text), markup=False)

    def _save_choice(self, index: int) -> View:
        # Imported here, so that the screen appears sooner.
        from mergekit_map.workflows.select import refuse_other_front, select_point

        refuse_other_front(self.run_folder, index, self.view.point)
        return View.of(select_point(self.run_folder.path, index=index).front)

    def action_end(self, kind: Literal["merge", "chat"]) -> None:
        """Merge the current point, or chat with its merge, outside of the screen."""
        self.exit(ExitAction(self.view, kind))


class ReadingPage(ModalScreen[None]):
    """A text that fills the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss", "back")]
    DEFAULT_CSS = """
    ReadingPage { background: $background; }
    ReadingPage #keys { dock: bottom; color: $text-muted; height: auto; }
    """

    def __init__(self, text: RenderableType) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Lay out the text and its keys; the arrow keys scroll."""
        with VerticalScroll(id="page"):
            yield Static(self._text)
        yield Static("↑↓ scroll · esc back", id="keys")
