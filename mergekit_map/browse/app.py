"""The screen: the front as a list, with the current point beside or below it.

Merging, chat, upload and saving a choice are actions of the caller, ``Outside``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widgets import DataTable, Static

from mergekit_map.browse.pages import QuestionForm, ReadingPage
from mergekit_map.browse.panels import (
    FrontList,
    beside_text,
    help_text,
    items_text,
    keys_text,
    point_text,
    rivals_of_items,
    weights_text,
)
from mergekit_map.browse.state import View, rivals
from mergekit_map.errors import MapError
from mergekit_map.results.samples import ItemRecords
from mergekit_map.utils.text import printable

Doing: TypeAlias = Literal["merge", "talk", "push"]


@dataclass(frozen=True)
class ExitAction:
    """An action requested outside of the screen."""

    doing: Doing
    choice: Mapping[str, Any]  # of select: the point one is at
    words: Mapping[str, str]  # what was answered


@dataclass(frozen=True)
class Outside:
    """The actions that the screen leaves to its caller."""

    wish: Callable[[View, Mapping[str, str]], View]  # limits and preferences
    save: Callable[[Mapping[str, Any]], View]  # write a choice, and read what is now
    said: Callable[[View], Text]  # what the numbers mean at a point
    merged: Callable[[], str]  # the folder that was merged into last


_BESIDE = 110  # columns from which the point is shown beside the list
_TALL = 30  # lines from which headings of the list may have a line more


class Browser(App[ExitAction]):
    """The program that shows the front of a finished search."""

    TITLE = "mergekit-map browse"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *((f"{n}", f"sort({n})", "sort") for n in range(10)),
        ("l", "limits", "limits"),
        ("x", "no_limits", "no limits"),
        ("space", "mark", "mark"),
        ("c", "compare", "compare"),
        ("i", "items", "items"),
        ("v", "meaning", "meaning"),
        ("s", "save", "save"),
        ("m", "merge", "merge"),
        ("t", "talk", "talk"),
        ("p", "push", "push"),
        ("question_mark", "help", "help"),
        ("q", "quit", "quit"),
    ]
    CSS = """
    #title { height: 1; text-style: bold; background: $primary; color: $text; }
    #body { height: 1fr; layout: vertical; }
    #list { height: 2fr; min-height: 6; scrollbar-size-vertical: 1; }
    #about { height: 3fr; }
    #weights { height: auto; max-height: 50%; overflow-y: auto; padding: 0 1;
        background: $boost; }
    #scrolled { height: 1fr; padding: 0 1; }
    #point { height: auto; }
    #said { display: none; height: auto; max-height: 4; padding: 0 1; }
    #keys { height: auto; color: $text-muted; padding: 0 1; }
    .beside #body { layout: horizontal; }
    .beside #list { height: 1fr; width: 1fr; }
    .beside #about { height: 1fr; width: 1fr; }
    """

    def __init__(
        self,
        run: Path,
        view: View,
        records: ItemRecords,
        outside: Outside,
        name: str,
    ) -> None:
        """Create the program for a view of the folder ``run`` and the search's name."""
        super().__init__()
        self.run_folder, self.view, self._called = run, view, printable(name)
        self._records, self._outside = records, outside
        self._wish: Mapping[str, str] = {}

    def compose(self) -> ComposeResult:
        """Lay out list, point, and lines above and below them."""
        yield Static(id="title")
        with Container(id="body"):
            yield FrontList(id="list", cursor_type="row", zebra_stripes=True)
            with Vertical(id="about"):
                yield Static(id="weights")
                with VerticalScroll(id="scrolled"):
                    yield Static(id="point")
        yield Static(id="said")
        yield Static(id="keys")

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new width."""
        self.screen_stack[0].set_class(event.size.width >= _BESIDE, "beside")
        keys = Text(keys_text(event.size.width - 2))
        self.screen_stack[0].query_one("#keys", Static).update(keys)
        self.call_after_refresh(self._show_all)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the highlighted point."""
        if event.row_key is not None and event.row_key.value is not None:
            at = int(event.row_key.value)
            if at != self.view.at:
                self.view = self.view.moved(at)
                self._show_point()

    @property
    def table(self) -> FrontList:
        """Return the list."""
        return self.screen_stack[0].query_one(FrontList)

    def _show_all(self) -> None:
        self.table.show(self.view, heading=3 if self.size.height >= _TALL else 2)
        self._show_point()

    def _show_point(self) -> None:
        view, screen = self.view, self.screen_stack[0]
        width = max(20, screen.query_one("#scrolled").size.width - 4)
        names = list(view.front.coefficients)
        weights = weights_text(view.point, names, width)
        screen.query_one("#weights", Static).update(weights)
        screen.query_one("#point", Static).update(point_text(view, width))
        screen.query_one("#title", Static).update(Text(self._title()))

    def _title(self) -> str:
        view = self.view
        words = [f"point {view.at} of {len(view.front.points)}"]
        words += ["chosen"] if view.at == view.front.selected else []
        words += ["recommended"] if view.at in view.front.recommended else []
        words += ["misses a limit"] if view.at in view.missing else []
        words += ["not saved yet"] if view.at >= view.saved else []
        return f" {', '.join(words)} · {self._called}"

    def say(self, text: str, *, wrong: bool = False) -> None:
        """Show a line below the front."""
        said = Text(printable(text), "bold red" if wrong else "")
        line = self.screen_stack[0].query_one("#said", Static)
        line.update(said)
        line.display = bool(text)

    def action_sort(self, number: int) -> None:
        """Sort by a task, counted from 1; by 0 in the order of the front."""
        tasks = list(self.view.front.tasks)
        if number > len(tasks):
            return
        self.view = self.view.sorted(tasks[number - 1] if number else None)
        by = self.view.sorted_by
        last = "last" if by and by[1] else "first"
        self.say(f"sorted by {by[0]}, the best {last}" if by else "as found")
        self._show_all()

    def action_mark(self) -> None:
        """Mark the current point."""
        self.view = self.view.with_mark()
        self._show_all()

    def action_compare(self) -> None:
        """Show the current point beside others, one after the other."""
        others, view = rivals(self.view), self.view

        def write(place: int, width: int) -> Text:
            mine = (f"point {view.at}", view.point)
            return beside_text(view.front, mine, others[place], width)

        self.push_screen(ReadingPage(write, len(others)))

    def action_items(self) -> None:
        """Show which items got better or worse."""
        view, others, tasks = (
            self.view,
            rivals_of_items(self.view),
            [*self.view.front.tasks],
        )
        place = 0

        def turn_on() -> None:
            nonlocal place
            place = (place + 1) % len(tasks)

        def write(rival: int, width: int) -> Text:
            task = tasks[place]
            return items_text(view, self._records, task, others[rival], width)

        self.push_screen(ReadingPage(write, len(others), "tab next task · ", turn_on))

    def action_meaning(self) -> None:
        """Show what the numbers mean."""
        said = self._outside.said(self.view)
        self.push_screen(ReadingPage(lambda _place, _width: said))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(ReadingPage(lambda _, width: Text(help_text(width))))

    @work
    async def action_limits(self) -> None:
        """Ask for limits and preferences, and go to the point that they choose."""
        tasks = list(self.view.front.tasks)
        example = f"{tasks[0]}=2" + (f",{tasks[1]}=1" if len(tasks) > 1 else "")
        fields = [
            (
                "require",
                f"limits, such as {tasks[-1]}=95%",
                self._wish.get("require", ""),
            ),
            ("prefer", f"preference, such as {example}", self._wish.get("prefer", "")),
            (
                "more",
                "other words of select, such as --knee",
                self._wish.get("more", ""),
            ),
        ]
        about = "As --require and --prefer of select. Nothing is written."
        answer = await self.push_screen_wait(
            QuestionForm(about, fields, all_of_them=False)
        )
        if answer is None:
            return
        self._wish = answer
        if not any(answer.values()):
            self.action_no_limits()
            return
        self.say("choosing ...")
        self._choose(answer)

    @work(thread=True, exclusive=True)
    def _choose(self, answer: Mapping[str, str]) -> None:
        self._take(
            lambda: self._outside.wish(self.view, answer),
            "point {at} is chosen so; s saves it",
        )

    def action_no_limits(self) -> None:
        """Remove limits and preferences."""
        self.view, self._wish = self.view.without_wish(), {}
        self.say("")
        self._show_all()

    @work(thread=True, exclusive=True)
    def action_save(self) -> None:
        """Choose the current point, as the command select."""
        choice = self.view.asked
        self.call_from_thread(self.say, "saving ...")
        recipe = self.run_folder / "recipe.yml"
        self._take(
            lambda: self._outside.save(choice),
            f"point {{at}} is chosen; its recipe is {recipe}",
        )

    def _take(self, make: Callable[[], View], said: str) -> None:
        """Show a text that another thread makes, or the reason for its failure."""
        try:
            view = make()
        except (MapError, OSError) as error:
            self.call_from_thread(self.say, str(error), wrong=True)
            return

        def show() -> None:
            self.view = view
            self.say(said.replace("{at}", str(view.at)))
            self._show_all()

        self.call_from_thread(show)

    def action_talk(self) -> None:
        """Chat with the merge, outside of the screen."""
        self.exit(ExitAction("talk", self.view.asked, {}))

    @work
    async def action_merge(self) -> None:
        """Ask for the folder, and merge outside of the screen."""
        place = f"{self._called}-{self.view.at}"
        about = f"Merge point {self.view.at}, and choose it, as the command merge does."
        fields = [("out", "folder for the merge", place)]
        answer = await self.push_screen_wait(
            QuestionForm(about, fields, all_of_them=True)
        )
        if answer is not None:
            self.exit(ExitAction("merge", self.view.asked, answer))

    @work
    async def action_push(self) -> None:
        """Ask for the options of a push, and push outside of the screen."""
        fields = [
            ("out", "folder of a merge", self._outside.merged()),
            ("repo", "repository of the Hub, such as me/my-merge", ""),
        ]
        about = "The files are shown, and you are asked again before anything is sent."
        answer = await self.push_screen_wait(
            QuestionForm(about, fields, all_of_them=True)
        )
        if answer is not None:
            self.exit(ExitAction("push", self.view.asked, answer))
