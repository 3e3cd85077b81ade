import numpy as np

from mergekit_map.demo.corpus import (
    Question,
    code_questions,
    math_questions,
    split_problems,
)

FILES = [
    f"def {name}_mean({name}_values, {name}_weights):\n"
    f"    {name}_total = sum({name}_values) + len({name}_weights)\n"
    f"    {name}_mean = {name}_total / len({name}_values)\n"
    f"    return {name}_mean\n"
    for name in ("alpha", "gamma", "delta", "kappa", "sigma", "omega")
]


def ask_code(seed: int = 0, count: int = 10) -> list[Question]:
    return code_questions(np.random.default_rng(seed), FILES, len, count)


def test_the_right_code_choice_alone_follows_its_prompt() -> None:
    questions = ask_code()
    assert questions
    for question in questions:
        follows = [
            any(question.prompt + choice + "\n" in text for text in FILES)
            for choice in question.choices
        ]
        assert [index for index, true in enumerate(follows) if true] == [
            question.answer
        ]


def test_wrong_code_choices_are_distinct_endings_of_lines_in_other_files() -> None:
    for question in ask_code():
        (home,) = [text for text in FILES if question.prompt in text]
        assert len(set(question.choices)) == 4
        for index, choice in enumerate(question.choices):
            assert (choice in home) == (index == question.answer)


def test_wrong_code_choices_are_as_surprising_as_the_right_one() -> None:
    for question in ask_code():
        right = len(question.choices[question.answer])
        assert all(
            abs(len(choice) - right) <= 0.04 * right for choice in question.choices
        )


def test_exactly_one_result_is_right() -> None:
    problems, _ = split_problems(np.random.default_rng(0), 20, 0.0)

    questions = math_questions(np.random.default_rng(1), problems, 150)

    assert len({question.prompt for question in questions}) == 150
    for question in questions:
        left, operation, right, _ = question.prompt.split()
        true = {
            "+": int(left) + int(right),
            "-": int(left) - int(right),
            "*": int(left) * int(right),
        }[operation]
        results = [int(choice) for choice in question.choices]
        assert len(set(results)) == 4
        assert min(results) >= 0
        assert [i for i, result in enumerate(results) if result == true] == [
            question.answer
        ]
