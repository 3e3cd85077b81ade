"""Screens over the front: texts, questions and items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

# Writes what a page shows, for a width; the number says which of several it is.
Write = Callable[[int, int], Text]


class ReadingPage(ModalScreen[None]):
    """A text that fills the screen, or one of several; arrow keys scroll and turn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "dismiss", "back"),
        ("left", "turn(-1)", "before"),
        ("right", "turn(1)", "next"),
        ("up", "scroll(-1)", "up"),
        ("down", "scroll(1)", "down"),
        ("tab", "turn_on", "other"),
    ]
    DEFAULT_CSS = """
    ReadingPage { background: $background; }
    ReadingPage #keys { dock: bottom; color: $text-muted; height: auto; }
    ReadingPage #text { height: auto; }
    """

    def __init__(
        self,
        write: Write,
        count: int = 1,
        keys: str = "",
        turn_on: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._write, self._count, self._place = write, count, 0
        self._keys, self._turned_on = keys, turn_on

    def compose(self) -> ComposeResult:
        """Lay out the text and its keys."""
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="text")
        turning = "←→ turn · " if self._count > 1 else ""
        yield Static(Text(f"{turning}{self._keys}↑↓ scroll · esc back"), id="keys")

    def on_resize(self, _: events.Resize) -> None:
        """Lay out for the new width."""
        self._show()

    def action_turn(self, step: int) -> None:
        """Show another of the texts."""
        self._place = (self._place + step) % self._count
        self._show()

    def action_turn_on(self) -> None:
        """Show the next text, by the key tab."""
        if self._turned_on is not None:
            self._turned_on()
            self._show()

    def action_scroll(self, step: int) -> None:
        """Scroll by a few lines."""
        self.query_one("#page").scroll_relative(y=3 * step, animate=False)

    def _show(self) -> None:
        width = max(20, self.size.width - 3)  # of the scroll bar
        self.query_one("#text", Static).update(self._write(self._place, width))


class QuestionForm(ModalScreen[Mapping[str, str] | None]):
    """Questions of a line each; enter answers."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "give_up", "back")]
    DEFAULT_CSS = """
    QuestionForm { align: center middle; }
    QuestionForm #box { width: 90%; max-width: 90; height: auto; max-height: 95%;
        border: round $primary; padding: 0 1; background: $surface; }
    QuestionForm Label { width: 100%; height: auto; }
    QuestionForm Input { background: $boost; margin-bottom: 1; }
    QuestionForm #keys { color: $text-muted; }
    """

    def __init__(
        self, about: str, fields: Sequence[tuple[str, str, str]], *, all_of_them: bool
    ) -> None:
        """Create the questions from fields: a name, a prompt and a default."""
        super().__init__()
        self._about, self._fields, self._all = about, fields, all_of_them

    def compose(self) -> ComposeResult:
        """Lay out the questions."""
        with Vertical(id="box"):
            yield Label(Text(self._about))
            for name, wanted, given in self._fields:
                yield Label(Text(wanted, style="bold"))
                yield Input(value=given, id=name, compact=True)
            yield Label(Text("enter: go · tab: next line · esc: back"), id="keys")

    def on_mount(self) -> None:
        """Begin with the first question."""
        self.query(Input).first().focus()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Answer, or go to the first required question without an answer."""
        answer = {field.id or "": field.value.strip() for field in self.query(Input)}
        empty = next((name for name, given in answer.items() if not given), None)
        if self._all and empty is not None:
            self.query_one(f"#{empty}", Input).focus()
        else:
            self.dismiss(answer)

    def action_give_up(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
