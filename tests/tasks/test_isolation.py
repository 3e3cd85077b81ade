from __future__ import annotations

import lm_eval.api.task
import lm_eval.utils
import pytest
from jinja2.exceptions import SecurityError

from mergekit_map.tasks.isolation import cached_templates, without_bars


def test_what_is_replaced_is_put_back() -> None:
    before = dict(vars(lm_eval.api.task)), dict(vars(lm_eval.utils.env))

    with without_bars(), without_bars(), cached_templates():
        assert lm_eval.api.task.tqdm([1, 2], disable=False).disable
        assert "from_string" in vars(lm_eval.utils.env)

    assert (vars(lm_eval.api.task), vars(lm_eval.utils.env)) == before


def test_a_template_gives_what_lm_evals_own_environment_gives() -> None:
    template = (
        "{% for c in choices %}{{loop.index}}. {{c}}\n{% endfor %}"
        "{{question|regex_replace('[0-9]', 'n')}} {{'%s: %d' % (question, answer)}}\n"
    )
    document = {"question": "2 + 2?", "choices": ["three", "four"], "answer": 1}
    expected = lm_eval.utils.env.from_string(template).render(**document)

    with cached_templates():
        assert lm_eval.utils.apply_template(template, document) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{{ (lipsum|attr('__globals__'))['os'].getcwd() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_a_template_reaches_no_python(template: str) -> None:
    with cached_templates(), pytest.raises(SecurityError, match=r"unsafe|undefined"):
        lm_eval.utils.apply_template(template, {})
