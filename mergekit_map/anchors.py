"""Labels of the anchors that are no single model, the same in every room."""

BASE = "base"
SOUP = "soup"
NO_SINGLE_MODEL = frozenset({BASE, SOUP})
