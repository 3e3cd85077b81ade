"""Screens over the front: texts, a question, and forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static


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
