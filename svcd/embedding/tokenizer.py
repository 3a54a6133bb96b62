"""Turns texts into the numbers of a model's tokens, as the model's `tokenizer.json` or `vocab.txt` says.

A text is normalized, cut into words, and the words are divided into pieces (subwords.py); then come the tokens that begin and end
every input of the model. Supported are the steps that models like BERT and XLM-RoBERTa use; others are an error with their name.
"""
from __future__ import annotations

import base64
import re
import unicodedata
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from svcd.base.json_text import loads_wrapped
from svcd.embedding.safetensors import BadModel
from svcd.embedding.subwords import Unigram, WordPiece

Json = Mapping[str, Any]
Normalize = Callable[[str], str]
Cut = Callable[[Sequence[str]], "list[str]"]  # words -> more words

FILES = ("tokenizer.json", "vocab.txt")
_SPACE = "▁"  # what unigram models have for a space
# Scripts written without spaces: BERT makes each character a word.
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
               (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
_WHITE = frozenset("\t\n\r")
_CONTROLS = frozenset(("Cc", "Cf", "Co", "Cs"))
_CLUSTER = re.compile("\r\n|.[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]*", re.DOTALL)


class Tokenizer:
    """The tokenizer of a model. Any thread may call."""

    def __init__(self, definition: Json) -> None:
        """definition: the content of a `tokenizer.json`. Raises BadModel."""
        try:
            self._normalize = _normalizer(definition.get("normalizer"))
            self._cut = _cutter(definition.get("pre_tokenizer"))
            self.subwords = _subwords(definition["model"])
            added = {token["content"]: token["id"] for token in definition.get("added_tokens") or () if token["content"]}
            self.before, self.after = _surroundings(definition.get("post_processor"), {**self.subwords.vocabulary, **added})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, re.error) as fault:
            raise BadModel(f"its tokenizer cannot be read: {type(fault).__name__}: {fault}") from None
        # Tokens such as `[SEP]` are found in texts by their exact spelling.
        self._added = added
        self._split = re.compile(f"({'|'.join(map(re.escape, sorted(added, key=len, reverse=True)))})").split if added else None

    def numbers(self, text: str, most: int, is_whole: bool = True) -> list[int]:
        """Return the numbers of the first tokens of a text, at most `most`. is_whole: including `before` and `after`."""
        room = most - len(self.before) - len(self.after) if is_whole else most
        # No token of a text that matters is longer; it keeps hostile texts from being normalized as a whole.
        text, found = text[:64 * most + 1024], list[int]()
        for part in self._split(text) if self._split else (text,):
            if part in self._added:
                found.append(self._added[part])
            elif normalized := self._normalize(part):
                for word in self._cut([normalized]):
                    found += self.subwords.pieces(word)
                    if len(found) >= room:
                        break
        return [*self.before, *found[:room], *self.after] if is_whole else found[:room]


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a folder with one of FILES. Raises BadModel, OSError."""
    for name in FILES:
        try:
            text = (folder / name).read_text("utf-8")
        except FileNotFoundError:
            continue
        except ValueError:
            raise BadModel(f"`{name}` is not in UTF-8") from None
        try:
            return Tokenizer(loads_wrapped(text) if name == FILES[0] else _definition(folder, text))
        except ValueError:
            raise BadModel(f"`{name}` is not JSON") from None
    raise BadModel("it has neither `tokenizer.json` nor `vocab.txt`")


def _definition(folder: Path, vocabulary: str) -> Json:
    """Return the content of the `tokenizer.json` that says the same as a `vocab.txt`."""
    path = folder / "tokenizer_config.json"
    lowercase = loads_wrapped(path.read_bytes()).get("do_lower_case", True) if path.exists() else True
    lines = vocabulary.removesuffix("\n").split("\n")
    numbers = {piece.rstrip("\r"): number for number, piece in enumerate(lines)}
    special = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in numbers]
    return {"normalizer": {"type": "BertNormalizer", "lowercase": lowercase}, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "vocab": numbers, "unk_token": "[UNK]"},
            "added_tokens": [{"content": token, "id": numbers[token]} for token in special],
            "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 0], "sep": ["[SEP]", 0]}}


def _subwords(model: Json) -> WordPiece | Unigram:
    kind = model.get("type") or ("WordPiece" if "continuing_subword_prefix" in model else "Unigram")
    if kind == "WordPiece":
        return WordPiece(model["vocab"], model.get("unk_token", "[UNK]"), model.get("continuing_subword_prefix", "##"),
                         model.get("max_input_chars_per_word", 100))
    if kind == "Unigram":
        return Unigram(model["vocab"], model.get("unk_id"), bool(model.get("byte_fallback")))
    raise BadModel(f"its tokenizer is of the type `{kind}`, and svcd reads `WordPiece` and `Unigram`")


def _surroundings(given: Json | None, vocabulary: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Return the numbers of the tokens before and after each text."""
    if given is None:
        return [], []
    kind = given["type"]
    if kind in ("BertProcessing", "RobertaProcessing"):
        return [vocabulary[given["cls"][0]]], [vocabulary[given["sep"][0]]]
    if kind == "Sequence":
        parts = [_surroundings(each, vocabulary) for each in given["processors"]]
        return [token for before, _ in parts for token in before], [token for _, after in parts for token in after]
    if kind != "TemplateProcessing":
        return [], []
    sides: tuple[list[int], list[int]] = [], []
    is_after = 0
    for item in given["single"]:
        if "Sequence" in item:
            is_after = 1
        else:
            sides[is_after].extend(given["special_tokens"][item["SpecialToken"]["id"]]["ids"])
    return sides


# Normalization

def _bert(given: Json) -> Normalize:
    is_cleaned, is_lower = given.get("clean_text", True), given.get("lowercase", True)
    strips = is_lower if given.get("strip_accents") is None else given["strip_accents"]
    spaces_ideographs = given.get("handle_chinese_chars", True)

    class Table(dict[int, "str | int | None"]):
        def __missing__(self, code: int) -> str | int | None:
            character, result = chr(code), code  # type: str, str | int | None
            if is_cleaned and (character in _WHITE or character.isspace() and unicodedata.category(character)[0] == "Z"):
                result = " "
            elif is_cleaned and (not code or code == 0xFFFD or unicodedata.category(character) in _CONTROLS):
                result = None
            elif spaces_ideographs and any(first <= code <= last for first, last in _IDEOGRAPHS):
                result = f" {character} "
            self[code] = result
            return result

    table = Table()

    def normalized(text: str) -> str:
        text = text.translate(table)
        if text.isascii():
            return text.lower() if is_lower else text
        if strips:
            text = _without_accents(unicodedata.normalize("NFD", text))
        return _lower(text) if is_lower else text

    return normalized


def _without_accents(text: str) -> str:
    return "".join([character for character in text if unicodedata.category(character) != "Mn"])


def _lower(text: str) -> str:
    return "".join(map(str.lower, text))  # by character: a sigma at the end of a word is like others


def _precompiled(given: Json) -> Normalize:
    """The rules of SentencePiece: a trie of characters in a double array, and their replacements, each ended by a zero byte."""
    raw = base64.b64decode(given["precompiled_charsmap"] or "")
    if not raw:
        return str
    size = int.from_bytes(raw[:4], "little")
    units, texts = array("I", raw[4:4 + size]), raw[4 + size:]

    def offset(unit: int) -> int:
        return unit >> 10 << ((unit & 0x200) >> 6)

    def replaced(text: str) -> str | None:
        """Return the replacement of the shortest beginning in the trie; None without one."""
        position = offset(units[0])
        for byte in text.encode("utf-8", "replace"):
            position ^= byte
            unit = units[position] if position < len(units) else 0
            if not byte or unit & 0x800000FF != byte:
                return None
            position ^= offset(unit)
            if unit >> 8 & 1:
                start = units[position] & 0x7FFFFFFF
                return texts[start:texts.index(b"\0", start)].decode("utf-8", "replace")
        return None

    kept: dict[str, str] = {}

    def cluster(found: re.Match[str]) -> str:
        text = found[0]
        if text not in kept:
            whole = replaced(text) if len(text.encode("utf-8", "replace")) < 6 else None
            each = [replaced(character) for character in text] if whole is None else []
            if len(kept) > 10_000:
                kept.clear()
            kept[text] = whole if whole is not None else "".join(
                character if new is None else new for character, new in zip(text, each))
        return kept[text]

    return lambda text: _CLUSTER.sub(cluster, text)


def _replace(given: Json) -> Normalize:
    pattern = given["pattern"]
    found = re.compile(pattern["Regex"] if "Regex" in pattern else re.escape(pattern["String"]))
    return lambda text: found.sub(lambda _: given["content"], text)


def _strip(given: Json) -> Normalize:
    left, right = given.get("strip_left", True), given.get("strip_right", True)
    return lambda text: (text.lstrip() if left else text).rstrip() if right else text.lstrip() if left else text


def _sequence(given: Json) -> Normalize:
    steps = list(map(_normalizer, given["normalizers"]))

    def normalized(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return normalized


def _form(given: Json) -> Normalize:
    return lambda text: unicodedata.normalize(given["type"], text)


_NORMALIZERS: Mapping[str, Callable[[Json], Normalize]] = {
    "BertNormalizer": _bert, "Precompiled": _precompiled, "Sequence": _sequence, "Replace": _replace, "Strip": _strip,
    "NFC": _form, "NFD": _form, "NFKC": _form, "NFKD": _form, "Lowercase": lambda _: _lower,
    "StripAccents": lambda _: _without_accents,
    "Prepend": lambda given: lambda text: given["prepend"] + text if text else text,
}


def _normalizer(given: Json | None) -> Normalize:
    return str if given is None else _step(_NORMALIZERS, given)


def _step(table: Mapping[str, Callable[[Json], Any]], given: Json) -> Any:
    """Return the step of a kind that the table has. Raises BadModel."""
    if given["type"] not in table:
        raise BadModel(f"its tokenizer has the step `{given['type']}`, and svcd reads {', '.join(f'`{kind}`' for kind in table)}")
    return table[given["type"]](given)


# Words

def is_punctuation(character: str) -> bool:
    """Return whether BERT makes the character a word of its own."""
    code = ord(character)
    return (33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
            or code > 127 and unicodedata.category(character)[0] == "P")


def _by_punctuation(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        if word.isalnum():
            found.append(word)
            continue
        start = 0
        for place, character in enumerate(word):
            if is_punctuation(character):
                found += [word[start:place], character] if start < place else [character]
                start = place + 1
        if start < len(word):
            found.append(word[start:])
    return found


def _by_space(words: Sequence[str]) -> list[str]:
    return [part for word in words for part in word.split()]


def _metaspace(given: Json) -> Cut:
    space = given.get("replacement", _SPACE)
    scheme = given.get("prepend_scheme") or ("always" if given.get("add_prefix_space", True) else "never")
    if scheme not in ("always", "never"):
        raise BadModel(f"its tokenizer puts spaces before words by the scheme `{scheme}`, and svcd by `always` or `never`")
    parts = re.compile(f"{re.escape(space)}[^{re.escape(space)}]*|[^{re.escape(space)}]+")

    def cut(words: Sequence[str]) -> list[str]:
        found: list[str] = []
        for word in words:
            word = word.replace(" ", space)
            if scheme == "always" and not word.startswith(space):
                word = space + word
            found += parts.findall(word) if given.get("split", True) else [word]
        return found

    return cut


def _sequence_of_cuts(given: Json) -> Cut:
    steps = list(map(_cutter, given["pretokenizers"]))

    def cut(words: Sequence[str]) -> list[str]:
        for step in steps:
            words = step(words)
        return list(words)

    return cut


_find_words = re.compile(r"\w+|[^\w\s]+").findall
_CUTTERS: Mapping[str, Callable[[Json], Cut]] = {
    "BertPreTokenizer": lambda _: lambda words: _by_punctuation(_by_space(words)),
    "Metaspace": _metaspace, "Sequence": _sequence_of_cuts, "WhitespaceSplit": lambda _: _by_space,
    "Whitespace": lambda _: lambda words: [part for word in words for part in _find_words(word)],
    "Punctuation": lambda _: _by_punctuation,
}


def _cutter(given: Json | None) -> Cut:
    return list if given is None else _step(_CUTTERS, given)
