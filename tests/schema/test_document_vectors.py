"""What must hold of `_vectors` in a document:

1. Every form is read: null, a vector, several, an object that says whether they are made again.
2. Numbers are those of single precision that are nearest.
3. What is wrong is said in the words that clients know, the first fault alone.
4. Names without embedder are returned as they are, whatever they hold.
"""
from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.schema.document_vectors import checked_vectors, read_vectors, split_vectors

REQUIRED = "must be an array of floats, an array of arrays of floats, or an object with field `regenerate`"


@pytest.mark.parametrize("entry, vectors, regenerate", [
    (None, [], False),
    ([], [], False),
    ([1, 2.5], [[1, 2.5]], False),
    ([[1, 2], [3, 4]], [[1, 2], [3, 4]], False),
    ({"regenerate": False, "embeddings": [1, 2]}, [[1, 2]], False),
    ({"embeddings": [[1, 2]], "regenerate": True}, [[1, 2]], True),
    ({"regenerate": True}, None, True),
    ({"regenerate": True, "embeddings": None}, None, True),
    ({"regenerate": True, "embeddings": []}, [], True),
    ({"regenerate": False}, None, False),
    ({"regenerate": False, "embeddings": None}, [], False),
])
def test_every_form_is_read(entry: Any, vectors: Any, regenerate: bool) -> None:
    found = read_vectors(entry, "._vectors.e")
    assert (None if found.vectors is None else [vector.tolist() for vector in found.vectors]) == vectors
    assert found.regenerate is regenerate


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38) | st.integers(-9, 9), min_size=1))
def test_numbers_are_rounded_to_single_precision(numbers: list[float]) -> None:
    (vector,) = read_vectors(numbers, "").vectors or []
    assert list(vector) == [struct.unpack("f", struct.pack("f", number))[0] for number in numbers]


def test_too_large_numbers_become_the_largest() -> None:
    (vector,) = read_vectors([1e300, -1e39, 1], "").vectors or []
    assert list(vector) == [3.4028234663852886e+38, -3.4028234663852886e+38, 1]


@pytest.mark.parametrize("entry, message", [
    ({"embeddings": [0]}, f"Missing field `._vectors.e.regenerate`\n  - note: `._vectors.e` {REQUIRED}"),
    ({}, f"Missing field `._vectors.e.regenerate`\n  - note: `._vectors.e` {REQUIRED}"),
    ({"regenerate": "yes please"},
     'Could not parse `._vectors.e.regenerate`: invalid type: string "yes please", expected a boolean at line 1 column 26'),
    ({"embeddings": [1], "regenerate": 1},
     "Could not parse `._vectors.e.regenerate`: invalid type: integer `1`, expected a boolean at line 1 column 32"),
    ({"regenerate": True, "other": 1},
     "Unexpected field `._vectors.e.other`\n  - note: the allowed fields are `regenerate` and `embeddings`"),
    ({"regenerate": True, "embeddings": True},
     "Invalid value type at `._vectors.e.embeddings`: expected null or an array, but found a boolean: `true`"),
    ({"regenerate": True, "embeddings": [True]},
     "Invalid value type at `._vectors.e.embeddings[0]`: expected a number or an array, but found a boolean: `true`"),
    ({"regenerate": True, "embeddings": [[True]]},
     "Invalid value type at `._vectors.e.embeddings[0][0]`: expected a number, but found a boolean: `true`"),
    ({"regenerate": False, "embeddings": [0.1, [0.2, 0.3]]},
     "Invalid value type at `._vectors.e.embeddings[1]`: expected a number, but found an array: `[0.2,0.3]`"),
    ({"regenerate": False, "embeddings": [[0.1, 0.2], 0.3]},
     "Invalid value type at `._vectors.e.embeddings[1]`: expected an array, but found a number: `0.3`"),
    ({"regenerate": False, "embeddings": [[0.1, True], 0.3]},
     "Invalid value type at `._vectors.e.embeddings[0][1]`: expected a number, but found a boolean: `true`"),
    ([1, "a"], 'Invalid value type at `._vectors.e[1]`: expected a number, but found a string: `"a"`'),
    ("text", "Expected `._vectors.e` to be an array of floats, an array of arrays of floats, or an object with at least the "
             "field `regenerate`, but got the string `text`"),
])
def test_faults_are_said_in_known_words(entry: Any, message: str) -> None:
    with pytest.raises(ApiError) as error:
        checked_vectors("7", "e", entry, 1)
    assert error.value.code == "invalid_vectors_type"
    assert error.value.message == f"Bad embedder configuration in the document with id: `7`. {message}"


def test_vectors_have_the_length_of_the_embedder() -> None:
    with pytest.raises(ApiError) as error:
        checked_vectors("7", "e", [[1, 2], [1, 2, 3]], 2)
    assert (error.value.code, error.value.message) == (
        "invalid_vector_dimensions", "Invalid vector dimensions in document with id `7` in `._vectors.e`.\n"
        "  - note: embedding #1 has dimensions 3\n  - note: embedder `e` requires 2")


def test_a_document_has_at_most_256_vectors_of_an_embedder() -> None:
    assert checked_vectors("7", "e", [[1]] * 256, 1).vectors
    with pytest.raises(ApiError) as error:
        checked_vectors("7", "e", [[1]] * 257, 1)
    assert (error.value.code, error.value.message) == (
        "too_many_vectors", "Too many vectors for document with id 7: found 257, but limited to 256.")


def test_names_without_embedder_are_returned() -> None:
    given_vectors, others = split_vectors("7", {"e": [1], "f": [1, 2], "g": "odd"}, {"e": 1})
    assert list(given_vectors) == ["e"]
    assert others == {"f": [1, 2], "g": "odd"}
    assert split_vectors("7", None, {"e": 1}) == ({}, {})


def test_vectors_are_an_object() -> None:
    with pytest.raises(ApiError) as error:
        split_vectors("7", [1, 2], {})
    assert (error.value.code, error.value.message) == (
        "invalid_vectors_type", "The `_vectors` field in the document with id: `7` is not an object. Was expecting an object with "
        "a key for each embedder with manually provided vectors, but instead got `[1,2]`")
