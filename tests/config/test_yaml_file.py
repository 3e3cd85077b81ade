from __future__ import annotations

import yaml

from mergekit_map.config.yaml_file import yaml_text


def test_comments_stand_on_top_a_line_each() -> None:
    text = yaml_text([{"b": 1, "a": [{"c": 2}]}], ["why", "", "two\nlines: here"])

    assert text == "# why\n#\n# two lines: here\nb: 1\na:\n- c: 2\n"


def test_what_holds_no_other_may_be_on_one_line() -> None:
    content = {"tasks": {"math": {"lm_eval": "gsm8k", "metric": "acc"}}}

    text = yaml_text([content], inline=True)

    assert text == "tasks:\n  math: {lm_eval: gsm8k, metric: acc}\n"
    assert yaml.safe_load(yaml_text([content])) == yaml.safe_load(text) == content
