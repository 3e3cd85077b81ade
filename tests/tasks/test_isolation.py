from __future__ import annotations

import io

import datasets
import lm_eval.api.task
import lm_eval.utils
import tqdm.auto

from mergekit_map.tasks.isolation import cached_templates, quiet


def test_what_is_replaced_is_put_back() -> None:
    bars = (lm_eval.api.task.tqdm, tqdm.auto.tqdm, datasets.utils.tqdm)

    with quiet(), quiet(), cached_templates():
        assert all(bar([1, 2], disable=False).disable for bar in bars)
        assert "from_string" in vars(lm_eval.utils.env)

    assert not any(
        bar([1, 2], disable=False, file=io.StringIO()).disable for bar in bars
    )
    assert "from_string" not in vars(lm_eval.utils.env)


def test_a_template_gives_what_lm_evals_own_environment_gives() -> None:
    template = (
        "{% for c in choices %}{{loop.index}}. {{c}}\n{% endfor %}"
        "{{question|regex_replace('[0-9]', 'n')}} {{'%s: %d' % (question, answer)}}\n"
    )
    document = {"question": "2 + 2?", "choices": ["three", "four"], "answer": 1}
    expected = lm_eval.utils.env.from_string(template).render(**document)

    with cached_templates():
        assert lm_eval.utils.apply_template(template, document) == expected
