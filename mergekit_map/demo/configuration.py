"""The configuration of the demo: mergekit YAML with a ``map:`` block."""

from __future__ import annotations

import json

from mergekit_map.demo.family import Family

_TEMPLATE = """\
# What the demo runs. Outside of map: this is the file that mergekit-yaml reads; the
# models have no weight, because their weights are what is searched.
merge_method: task_arithmetic
base_model: {base}
models:
  - model: {code}
  - model: {math}
dtype: float32
map:
  tasks:
    # Mean token loss on text that no model has seen; smaller is better.
    code_loss: {{perplexity: {{file: {code_text}, field: text}}, max_tokens: 16384}}
    math_loss: {{perplexity: {{file: {math_text}, field: text}}, max_tokens: 16384}}
  search: {{strategy: map, evaluations: 20, bounds: [0, 1], seed: 0}}
  # Both alike, and neither worse than it was, or than plain averaging makes it.
  select: {{not_worse_than: [base, soup]}}
"""


def demo_config(family: Family) -> str:
    """Return the configuration for a family, with absolute paths."""
    paths = {
        **{name: family.model(name) for name in ("base", "code", "math")},
        **{f"{name}_text": family.text(name) for name in ("code", "math")},
    }
    # JSON quotes whatever a path may hold, and YAML reads JSON.
    return _TEMPLATE.format(
        **{name: json.dumps(str(p), ensure_ascii=False) for name, p in paths.items()}
    )
