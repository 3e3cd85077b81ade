"""Templates of tasks: what lm-eval renders, and programs that must not run."""

from __future__ import annotations

import lm_eval.utils
import pytest
from jinja2.exceptions import SecurityError

from mergekit_map.tasks import templates
from mergekit_map.tasks.lm_eval_patches import cached_templates

DOCUMENT = {
    "question": "What is 2 + 2?",
    "choices": ["three", "four"],
    "answer": 1,
    "nested": {"a": [1, 2]},
}
TEMPLATES = [
    "{{question}}",
    "{{question.strip()}}\n{% for c in choices %}{{loop.index}}. {{c}}\n{% endfor %}",
    "{{choices[answer]|upper}} {{choices|join(', ')}} {{nested.a|sum}}",
    "{{question|regex_replace('[0-9]', 'n')}} {{'%s: %d' % (question, answer)}}",
    "{{'{} {:>4}'.format(answer, answer)}} {{'-' * 40}} {{answer * 3 + 2 ** 10}}",
    "{% set found = [] %}{% set _ = found.append(1) %}{{found}} {{'a'|center(9)}}\n",
    "{{ 'yes' if answer > 0 else 'no' }}{# nothing #} {{choices[::-1]}}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_gives_what_lm_evals_own_environment_gives(template: str) -> None:
    expected = lm_eval.utils.env.from_string(template).render(**DOCUMENT)

    with cached_templates():
        assert lm_eval.utils.apply_template(template, DOCUMENT) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{{ (lipsum|attr('__globals__'))['os'].getcwd() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 'x' * 10**10 }}",
        "{{ 10**10 * [1] }}",
        "{{ 9**(9**9) }}",
        "{{ 'x'.ljust(10**10) }}",
        "{{ 'x'|center(10**10) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '%9999999999d'|format(1) }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**10) }}",
        "{{ '{x:>9999999999}'.format_map({'x': 1}) }}",
    ],
)
def test_a_template_reaches_no_python_and_fills_no_memory(template: str) -> None:
    refusal = pytest.raises((SecurityError, OverflowError))

    with cached_templates(), refusal:
        lm_eval.utils.apply_template(template, {})


def test_a_template_that_does_not_end_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(templates, "_SECONDS", 0.2)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}"
    loops += "{% endfor %}{% endfor %}"

    with cached_templates(), pytest.raises(SecurityError, match=r"more than 0\.2 s"):
        lm_eval.utils.apply_template(loops, {})
