"""What must hold of templates of requests and responses:

1. One placeholder, anywhere; in an array with `{{..}}` in second place the first item is repeated for each value.
2. Templates without use are rejected with the place.
3. Vectors are found where the response template says, in order; else the message names the place, and a key that is meant.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.schema.exchange_templates import TemplateMismatch, request_template, response_template

MANY = request_template(["{{text}}", "{{..}}"], False)
ONE = request_template("{{text}}", False)


@pytest.mark.parametrize("template, values, request_", [
    ("{{text}}", ["a"], "a"),
    ({"a": [1, {"b": "{{text}}"}], "c": "{{x}}"}, [{"f": 1}], {"a": [1, {"b": {"f": 1}}], "c": "{{x}}"}),
    ({"a": ["{{text}}", "{{..}}"]}, ["x", "y"], {"a": ["x", "y"]}),
    ([{"a": "{{text}}", "b": 1}, "{{..}}", "dropped"], ["x", "y"], [{"a": "x", "b": 1}, {"a": "y", "b": 1}]),
])
def test_values_are_put_in(template: Any, values: list[Any], request_: Any) -> None:
    made = request_template(template, False)
    assert made.inject(values) == request_
    assert made.inject(values) == request_
    assert made.is_repeated == isinstance(made.within, tuple)


@pytest.mark.parametrize("template, message", [
    (42, 'in `request`: "{{text}}" not found'),
    ({"a": "{{text}} "}, 'in `request`: "{{text}}" not found'),
    ("{{..}}", 'in `request`: "{{..}}" appears outside of an array'),
    ({"a": "{{..}}"}, 'in `request.a`: "{{..}}" appears outside of an array'),
    ({"a": "{{text}}", "b": [0, "{{text}}"]}, 'in `request.b[1]`: Found "{{text}}", but it was already present in `request.a`'),
    ({"a": ["{{..}}", "{{..}}"]}, 'in `request.a`: "{{..}}" expected at position #1, but found at position #0'),
    ({"a": ["{{text}}", "{{..}}", 1, "{{..}}"]}, 'in `request.a`: "{{..}}" expected at position #1, but found at position #3'),
    (["{{..}}"], 'in `request`: "{{..}}" expected at position #1, but found at position #0'),
    ({"a": ["x", "{{..}}"]}, 'in `request.a[0]`: Expected "{{text}}" inside of the repeated value'),
    ({"a": ["{{text}}", "{{..}}"], "b": ["{{text}}", "{{..}}"]},
     'in `request.b`: Found "{{..}}", but it was already present in `request.a`'),
    ({"a": [{"b": ["{{text}}", "{{..}}"]}, "{{..}}"]},
     'in `request.a.b`: "{{..}}" appears nested inside of a value that is itself repeated'),
    ({"a": [{"b": "{{text}}", "c": "{{text}}"}, "{{..}}"]},
     'in `request.a.c`: Found "{{text}}", but it was already present in `request.a.b`'),
    ({"a": "{{text}}", "b": [{"c": "{{text}}"}, "{{..}}"]},
     'in `request.a`: Found "{{text}}", but it was already present in `request.b[0].c` (repeated)'),
])
def test_templates_without_use(template: Any, message: str) -> None:
    with pytest.raises(TemplateMismatch) as mismatch:
        request_template(template, False)
    assert str(mismatch.value).split("\n")[0] == message


def test_vectors_are_found() -> None:
    assert response_template({"a": [1, "{{embedding}}"]}, ONE).extract({"a": [0, [1, 2.5]], "b": 1}) == [[1, 2.5]]
    assert response_template([{"e": "{{embedding}}"}, "{{..}}"], MANY).extract([{"e": [1]}, {"e": []}]) == [[1], []]


@pytest.mark.parametrize("template, response, message", [
    ({"data": "{{embedding}}"}, {"dta": []},
     'in `response`, while extracting a single "{{embedding}}", configuration expects key "data", which is missing in response\n'
     "  - Hint: `response` has key `dta`, did you mean `response.dta` in embedder configuration?"),
    ({"data": "{{embedding}}"}, {"other": []},
     'in `response`, while extracting a single "{{embedding}}", configuration expects key "data", which is missing in response'),
    ({"a": [0, "{{embedding}}"]}, {"a": [0]},
     'in `response.a`, while extracting a single "{{embedding}}", configuration expects item #1, which is missing in response'),
    ({"a": [[["{{embedding}}"]]]}, {"a": [[7]]},
     'in `response.a[0][0]`, while extracting a single "{{embedding}}", configuration expects item #0 inside nested array in `a` to '
     "be an array with at least 1 item(s) but server sent 7"),
    ([[[["{{embedding}}"]]]], [[["x"]]],
     'in `response[0][0][0]`, while extracting a single "{{embedding}}", configuration expects item #0 inside nested array (2 levels '
     'of nesting) in `response` to be an array with at least 1 item(s) but server sent "x"'),
    ({"data": "{{embedding}}"}, [1, 2],
     'in `response`, while extracting a single "{{embedding}}", configuration expects `response` to be an object with key `data` '
     "but server sent an array of size 2"),
    ("{{embedding}}", [1, None],
     'in `response`, while extracting a single "{{embedding}}", expected `response` to be an array of numbers, but failed to parse '
     "server response:\n  - invalid type: null, expected f32"),
    ("{{embedding}}", True,
     'in `response`, while extracting a single "{{embedding}}", expected `response` to be an array of numbers, but failed to parse '
     "server response:\n  - invalid type: boolean `true`, expected a sequence"),
])
def test_one_vector_that_is_not_there(template: Any, response: Any, message: str) -> None:
    with pytest.raises(TemplateMismatch) as mismatch:
        response_template(template, ONE).extract(response)
    assert str(mismatch.value) == message


@pytest.mark.parametrize("response, message", [
    ({"data": 3}, 'in `response.data`, while extracting the array of "{{embedding}}"s, configuration expects `data` to be an array with '
                  "at least 1 item(s) but server sent 3"),
    ({"data": [{"e": [1]}, {}]}, 'in `response`, while extracting item #1 from the array of "{{embedding}}"s, configuration expects key '
                                 '"e", which is missing in response'),
    ({"data": [{"e": "x"}]}, 'in `response.e`, while extracting item #0 from the array of "{{embedding}}"s, expected `e` to be an array '
                             'of numbers, but failed to parse server response:\n  - invalid type: string "x", expected a sequence'),
])
def test_several_vectors_that_are_not_there(response: Any, message: str) -> None:
    with pytest.raises(TemplateMismatch) as mismatch:
        response_template({"data": [{"e": "{{embedding}}"}, "{{..}}"]}, MANY).extract(response)
    assert str(mismatch.value) == message
