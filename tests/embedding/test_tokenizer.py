"""What must hold of tokenizers:

1. `vocab.txt` and the `tokenizer.json` of models like BERT: cleaned, lower case without accents, punctuation and ideographs alone.
2. `tokenizer.json` of models like XLM-RoBERTa: the rules of SentencePiece, spaces as part of words.
3. Special tokens are found in texts; inputs are cut to the length of the model, with what begins and ends them.
4. Where the package tokenizers is installed, the numbers are its numbers.
5. Steps that svcd does not have are errors with their name.
"""
from __future__ import annotations

import base64
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding.safetensors import BadModel
from svcd.embedding.tokenizer import Tokenizer, read_tokenizer
from tests.support.tiny_model import WORDS

SPECIAL = [{"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} for number, content in enumerate(["<s>", "<pad>", "</s>", "<unk>"])]


def charsmap(rules: dict[str, str]) -> str:
    """Rules of SentencePiece: a double array of the bytes of each key, and the replacements."""
    keys, texts = {}, b""
    for key, replacement in rules.items():
        keys[key.encode()] = len(texts)
        texts += replacement.encode() + b"\0"
    units, used = [0] * 4096, {0}

    def place(node: int, prefix: bytes) -> None:
        below = {key[len(prefix)] for key in keys if key.startswith(prefix) and key != prefix}
        labels = [*([0] if prefix in keys else []), *sorted(below)]
        base = next(base for base in range(1, 3000) if not used & {base ^ label for label in labels})
        used.update(base ^ label for label in labels)
        units[node] |= (node ^ base) << 10 | (prefix in keys) << 8
        for label in labels:
            units[base ^ label] = label or keys[prefix] | 1 << 31
        for label in below:
            place(base ^ label, prefix + bytes([label]))

    place(0, b"")
    array = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def roberta(**changes: Any) -> dict[str, Any]:
    """The definition of a tokenizer like that of XLM-RoBERTa."""
    scored = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["▁the", -3.0], ["▁cat", -4.0], ["s", -2.5],
              ["▁c", -4.0], ["at", -5.0], ["a", -6.0], ["t", -6.0], ["1", -5.0], ["fi", -5.0], ["▁fi", -4.5], ["nd", -5.0], ["日", -7.0]]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": SPECIAL,
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap({"ﬁ": "fi", "①": "1", "\u3000": " ", "T": "t", "\t": " "})},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "prepend_scheme": "always"}]},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]} for token, number in (("<s>", 0), ("</s>", 2))}},
            "decoder": None, "model": {"type": "Unigram", "unk_id": 3, "vocab": scored, "byte_fallback": False}, **changes}


@pytest.fixture
def bert(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    return read_tokenizer(tmp_path)


@pytest.mark.parametrize("text, pieces", [
    ("The CAT walks.", "the cat [UNK] ."),
    ("drive\u00addrives\t\x00car\u200b!", "[UNK] car !"),
    ("é café E\u0301", "e caf ##e e"),
    ("日本cat", "日 本 cat"),
    ("cat.cat,,dog", "cat . cat , , dog"),
    ("the [SEP] cat[MASK]", "the [SEP] cat [MASK]"),
    ("x" * 300, "[UNK]"),
    ("", ""),
])
def test_bert_makes_words_and_pieces(bert: Tokenizer, text: str, pieces: str) -> None:
    assert [WORDS[number] for number in bert.numbers(text, 32)] == ["[CLS]", *pieces.split(), "[SEP]"]
    assert [WORDS[number] for number in bert.numbers(text, 32, is_whole=False)] == pieces.split()


def test_inputs_are_cut_to_the_length_of_the_model(bert: Tokenizer) -> None:
    assert [WORDS[number] for number in bert.numbers("the cat, the dog", 5)] == ["[CLS]", "the", "cat", ",", "[SEP]"]
    assert len(bert.numbers("cat " * 100_000, 128)) == 128


def test_letters_keep_their_case_where_the_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nCafé\ncafe\n", "utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert read_tokenizer(tmp_path).numbers("Café cafe CAFE", 9) == [1, 3, 4, 0, 2]


@pytest.mark.parametrize("text, pieces", [
    ("The cats", "▁the ▁cat s"),
    ("ﬁnd\t①", "▁fi nd ▁ 1"),
    ("at\u3000cat </s> x", "▁ at ▁cat </s> ▁ <unk>"),
    ("日q日", "▁ 日 <unk> 日"),
    ("   ", ""),
])
def test_roberta_makes_words_and_pieces(text: str, pieces: str) -> None:
    definition = roberta()
    names = [name for name, _ in definition["model"]["vocab"]]
    assert [names[number] for number in Tokenizer(definition).numbers(text, 32)] == ["<s>", *pieces.split(), "</s>"]


def test_numbers_equal_those_of_the_package() -> None:
    tokenizers, chance = pytest.importorskip("tokenizers"), random.Random(2)
    parts = [*WORDS, "ﬁ", "①", "\u3000", "T", "\t", " ", "the", "cats", "</s>", "é", "E\u0301", "\u00ad", "ß", "İ", "Σς", "’", "\u200d", "١", "🎉"]
    common = {"version": "1.0", "truncation": None, "padding": None, "decoder": None, "added_tokens": []}
    definitions = [roberta(), roberta(normalizer={"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Lowercase"},
        {"type": "StripAccents"}, {"type": "Strip", "strip_left": True, "strip_right": False}]},
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}), *(
        {**common, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                                  "lowercase": lower}, "pre_tokenizer": {"type": "BertPreTokenizer"},
         "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
         "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                   "vocab": {name: number for number, name in enumerate(WORDS)}}} for lower in (True, False))]
    for definition in definitions:
        trusted, own = tokenizers.Tokenizer.from_str(json.dumps(definition)), Tokenizer(definition)
        for _ in range(1500):
            text = "".join(chance.choice(["", " ", "  "]) + chance.choice(parts) for _ in range(chance.randrange(12)))
            assert own.numbers(text, 64) == trusted.encode(text).ids, (text, definition["pre_tokenizer"])


@pytest.mark.parametrize("changes, message", [
    ({"normalizer": {"type": "Nmt"}}, "the step `Nmt`, and svcd reads `BertNormalizer`"),
    ({"pre_tokenizer": {"type": "ByteLevel"}}, "the step `ByteLevel`"),
    ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}}, "by the scheme `first`"),
    ({"model": {"type": "BPE", "vocab": {}}}, "of the type `BPE`, and svcd reads `WordPiece` and `Unigram`"),
    ({"model": {}}, "its tokenizer cannot be read: KeyError"),
    ({"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}}, "its tokenizer cannot be read"),
])
def test_steps_that_svcd_does_not_have(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadModel, match=message):
        Tokenizer(roberta(**changes))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"neither `tokenizer.json` nor `vocab.txt`"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BadModel, match=r"`tokenizer.json` is not JSON"):
        read_tokenizer(tmp_path)
