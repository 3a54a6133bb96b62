"""What must hold of the tokenizer (docs/text-analysis.md):

1. Tokens cover the text, in order, without overlap.
2. Separators cut, the longest at each place; a custom list replaces, a dictionary joins.
3. A separator is hard or soft by its decomposed form; `…` becomes a word.
4. Lemmas: decomposition, case, marks, ligatures and letter variants by script.
5. Stop words are compared in decomposed form, with case, and take precedence over separators.
6. A group has one script; digits and spaces belong to the group before them.
7. Chinese and Japanese, and languages in Arabic script, are detected unless only one language is allowed.
8. Segmenters use the offered word lists; without them Chinese is cut into characters.
"""
from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.text import scripts, segmenters
from svcd.text.analyzer import HARD, SOFT, STOP_WORD, WORD, Analyzer, parts_of, shared_analyzer
from svcd.text.scripts import ARMENIAN, CJ, CYRILLIC, GREEK, LATIN, OTHER, groups
from svcd.text.segmenters import WordList
from tests.support.contract import table
from tests.support.shared_material import needs_oracle, oracle

DEFAULT = Analyzer()

# Letters, marks and separators of many scripts, so that short random texts meet many rules.
ALPHABET = (
    "aAbZ019 .,;!?'-_/\"()#…‥“”’—–éÉßẞøœÆİıđĐðςΣΟασήñç«»·×\n\t\xa0\u200b\xad\u200c、。！，：․´‗²½ⅷ№ﬁǅǆ"
    "\u0301\u0327\x00ЖжЁёйשלוםहિ한국กขไხ◌Ａｂ１ｶ👍🏽ª℃ᴫᵸ𐡗𑁇"
)
texts = st.text(st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"])), max_size=30)


def words(text: str, analyzer: Analyzer = DEFAULT, locales: list[str] | None = None) -> list[str]:
    return [token.lemma for token in analyzer.tokens(text, locales) if token.kind == WORD]


def kinds(text: str, analyzer: Analyzer = DEFAULT) -> list[tuple[str, str]]:
    return [(token.lemma, token.kind) for token in analyzer.tokens(text)]


@settings(deadline=None)  # the first Chinese text loads the list of words, where it is installed
@given(texts)
def test_tokens_cover_the_text(text: str) -> None:
    tokens = DEFAULT.tokens(text)
    assert "".join(token.text for token in tokens) == text
    assert all(text[token.start : token.end] == token.text != "" for token in tokens)
    assert [token.start for token in tokens] == [0, *(token.end for token in tokens)][: len(tokens)]


@settings(deadline=None)
@given(texts)
def test_parts_make_the_lemma(text: str) -> None:
    for token in DEFAULT.tokens(text):
        parts = parts_of(token.text, token.script, token.language)
        assert len(parts) == len(token.text)
        assert "".join(parts) == token.lemma


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.3", ["12", "3"]),
        ("can't", ["can", "t"]),
        ("C++", ["c"]),
        ("S.O.S", ["s", "o", "s"]),
        ("deLonghi foo_bar", ["delonghi", "foo", "bar"]),
        ("a$5 | x^2", ["a$5", "|", "x^2"]),
    ],
)
def test_default_separators_cut(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_the_longest_separator_is_taken() -> None:
    assert kinds("a, b ,c") == [("a", WORD), (", ", HARD), ("b", WORD), (" ", SOFT), (",", SOFT), ("c", WORD)]


def test_custom_separators_cut_and_are_soft() -> None:
    custom = Analyzer(separator_tokens=["ab", "&&"], non_separator_tokens=["-", ". "])
    assert kinds("xaby-z. c", custom) == [
        ("x", WORD), ("ab", SOFT), ("y-z", WORD), (".", SOFT), (" ", SOFT), ("c", WORD),
    ]  # fmt: skip


def test_dictionary_words_are_tokens_with_case() -> None:
    dictionary = Analyzer(dictionary=["J. R.", "new york", "new york city"])
    assert words("J. R. Tolkien, new york city", dictionary) == ["j. r.", "tolkien", "new york city"]
    assert words("New york", dictionary) == ["new", "york"]


def test_without_any_separator_left_the_default_ones_cut_but_are_words() -> None:
    nothing = Analyzer(non_separator_tokens=sorted(DEFAULT.separators.strings))
    assert kinds("a b", nothing) == [("a", WORD), (" ", WORD), ("b", WORD)]


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        (". ", (". ", HARD)),
        ("!", ("!", HARD)),
        ("。", ("。", HARD)),
        (".", (".", SOFT)),
        ("，", (",", SOFT)),
        ("！", ("!", HARD)),
        ("…", ("...", WORD)),
        ("\x00", ("", WORD)),
    ],
)
def test_separators_are_recognized_by_their_decomposed_form(separator: str, expected: tuple[str, str]) -> None:
    assert kinds(f"a{separator}b")[1] == expected


@pytest.mark.parametrize(
    ("text", "lemma"),
    [
        ("Été", "ete"),
        ("Œuvre", "oeuvre"),
        ("Straße", "straße"),
        ("Đại", "dai"),
        ("ıspanak", "ispanak"),
        ("ﬁne", "fine"),
        ("Ёж", "е\u0308ж"),  # Cyrillic keeps its marks
        ("ΌΣΟΣ", "οσοσ"),
        ("σίγμας", "σιγμασ"),
        ("שָׁלוֹם", "שלום"),
        ("أحمد", "احمد"),
        ("ԱԲԳ", "աբգ"),
        ("x²", "x2"),
        ("a\x1fb", "ab"),
        ("Ⅷ", "VIII"),  # of no script: its case stays
    ],
)
def test_lemmas(text: str, lemma: str) -> None:
    assert words(text) == [lemma]


def test_ideograph_variants_are_folded_in_chinese_only() -> None:
    assert words("㓻", locales=["cmn"]) == ["剛"]
    assert words("㓻", locales=["jpn"]) == ["㓻"]


def test_persian_letters_are_mapped_in_persian_only() -> None:
    assert words("۱۲", locales=["pes"]) == ["12"]
    assert words("۱۲", locales=["urd"]) == ["۱۲"]


def test_stop_words_have_case_and_win_over_separators() -> None:
    stopping = Analyzer(stop_words=["the", "é", "-"])
    assert kinds("The the é-", stopping)[::2] == [("the", WORD), ("the", STOP_WORD), ("e", STOP_WORD)]
    assert kinds("a-", stopping)[1] == ("-", STOP_WORD)


def test_stop_words_are_words_for_highlighting() -> None:
    tokens = Analyzer(stop_words=["the", "-"]).tokens("the-", stop_words=False)
    assert [token.kind for token in tokens] == [WORD, SOFT]


def test_groups_are_cut_where_the_script_changes() -> None:
    text = "12 Москва, Moscow 東京"
    assert [(text[g.start : g.end], g.script) for g in groups(text)] == [
        ("12 Москва, ", CYRILLIC),
        ("Moscow ", LATIN),
        ("東京", CJ),
    ]


@pytest.mark.parametrize(("text", "script"), [("12 + 3", OTHER), ("աբգ", ARMENIAN), ("α1", GREEK), ("«", LATIN)])
def test_script_of_a_single_group(text: str, script: str) -> None:
    assert [group.script for group in groups(text)] == [script]


def test_a_text_of_all_characters_leaves_little_behind() -> None:
    text, marks = "".join(map(chr, range(0xD800))), scripts._Marks()
    assert text.translate(marks) == "".join(scripts._MARK_OF[scripts.script_of(character)] for character in text)
    assert len(marks) <= scripts.CACHED_CHARACTERS


@given(texts)
def test_groups_cover_the_text(text: str) -> None:
    assert "".join(text[group.start : group.end] for group in groups(text)) == text


@pytest.mark.parametrize(
    ("text", "locales", "language"),
    [
        ("日本語", None, "cmn"),
        ("日本語 テスト", None, "jpn"),
        ("テスト", ["cmn", "eng"], "jpn"),
        ("日本語", ["jpn", "eng"], "jpn"),
        ("日本語", ["zh", "en"], "cmn"),
        ("日本語", ["de"], "deu"),
    ],
)
def test_chinese_and_japanese_are_distinguished(text: str, locales: list[str] | None, language: str) -> None:
    assert scripts.detect_language(text, CJ, locales) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("يولد جميع الناس أحرارا متساوين في الكرامة والحقوق", "ara"),
        ("تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند", "pes"),
        ("تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں", "urd"),
    ],
)
def test_languages_in_arabic_letters_are_distinguished(text: str, language: str) -> None:
    assert scripts.detect_language(text, "Arabic", None) == language
    assert scripts.detect_language(text, "Arabic", ["eng", "fra"]) is None


def test_the_arabic_article_is_cut_off() -> None:
    assert words("السلام", locales=["ara"]) == ["ال", "سلام"]
    assert words("ال") == ["ال"]


def test_japanese_is_not_cut() -> None:
    assert words("日本語 テスト ひらがな") == ["日本語", "テスト", "ひらか\u3099な"]


LISTS = {
    "cmn": {"人山人海": 8, "人山": 3, "人海": 2, "你好": 50, "世界": 60, "界人": 1},
    "tha": dict.fromkeys(["สวัสดี", "ครับ"], 1),
    "khm": {"ភាសា": 1},
    "deu": dict.fromkeys(["Wissens", "organisation", "Inter", "kulturalität"], 1),
}


@pytest.fixture
def word_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(LISTS) == set(segmenters.LISTS)
    monkeypatch.setattr(segmenters, "load_word_list", lambda language: WordList.of(LISTS[language]))
    monkeypatch.setattr(segmenters, "_made", {})


@pytest.mark.usefixtures("no_word_lists")
def test_chinese_without_a_word_list_goes_by_characters() -> None:
    assert words("你好123") == ["你", "好", "123"]


@pytest.mark.usefixtures("no_word_lists")
def test_thai_without_a_word_list_goes_from_space_to_space() -> None:
    assert words("สวัสดีครับ ครับ") == ["สวสดครบ", "ครบ"]


@pytest.mark.usefixtures("word_lists")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好世界", ["你好", "世界"]),
        ("人山人海", ["人山", "人海"]),  # found whole, then cut by the short words it holds
        ("世x界", ["世", "x", "界"]),
    ],
)
def test_chinese_takes_the_likeliest_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.usefixtures("word_lists")
def test_thai_and_khmer_take_the_longest_word() -> None:
    assert words("สวัสดีครับ") == ["สวสด", "ครบ"]
    assert words("ភាសាក") == ["ភាសា", "ក"]


@pytest.mark.usefixtures("word_lists")
def test_german_compounds_are_cut_only_in_german() -> None:
    assert words("Wissensorganisation", locales=["de"]) == ["wissens", "organisation"]
    assert words("xyWissensz", locales=["deu"]) == ["xy", "wissens", "z"]
    assert words("Interkulturalität", locales=["deu"]) == ["inter", "kulturalitat"]
    assert words("Wissensorganisation") == ["wissensorganisation"]


def test_numbers_are_never_segmented() -> None:
    assert words("12$5 你") == ["12$5", "你"]
    assert words("12$你") == ["12", "$", "你"]


def test_a_space_that_is_no_separator_joins() -> None:
    assert words("a\xa0b") == ["a b"]


def test_an_analyzer_is_shared_by_equal_lists() -> None:
    assert shared_analyzer(("a",)) is shared_analyzer(("a",))
    assert shared_analyzer(("a",)) is not shared_analyzer()


def test_characters_of_a_lemma_beginning() -> None:
    (token,) = DEFAULT.tokens("Œuvré")
    assert [token.characters_of(count) for count in (0, 1, 2, 3, 6)] == [0, 1, 1, 2, 5]


# --- against the contract's cases and the oracle

needs_word_lists = pytest.mark.skipif(
    bool(segmenters.missing()), reason="word lists are not installed (extra `languages`)"
)
# An n-gram of the query matched across a separator here: two words recorded as one span.
JOINED_BY_THE_QUERY = "1a a1 1.a a.1 v1.2.3"
# What only the public word lists would cut as recorded.
LISTED_SCRIPT = re.compile("[\u0e00-\u0e7f\u1780-\u17ff\u2e80-\u2fdf\u3005\u3007\u3400-\u9fff\uf900-\ufaff]{2}")


def missed_word_spans() -> list[str]:
    """Texts of the contract's cases that are cut into other words than the reference has."""
    missed = []
    for case in table("token-cases")["cases"]:
        tokens = DEFAULT.tokens(case["text"])
        spans = [[t.start, t.end] for t in tokens if t.kind == WORD and t.lemma.strip()][:10]
        if spans != case["wordSpans"][:10]:
            missed.append(case["text"])
    return missed


@pytest.mark.usefixtures("no_word_lists")
def test_recorded_word_spans_that_need_no_word_list() -> None:
    assert [text for text in missed_word_spans() if not LISTED_SCRIPT.search(text)] == [JOINED_BY_THE_QUERY]


@needs_word_lists
def test_recorded_word_spans() -> None:
    assert missed_word_spans() == [JOINED_BY_THE_QUERY]


ORACLE_KINDS = {"word": WORD, "stop": STOP_WORD, "soft": SOFT, "hard": HARD}
# Beyond the oracle: 1C-1F count as white space there, equal counters and Armenian are simplified, a
# control character hides the end of a word from its final sigma.
BEYOND = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u0530-\u058f\ufb13-\ufb17]")
PICKS = ["a", "ab", "é", "x", ". .", "👍"]


@needs_oracle
@pytest.mark.usefixtures("no_word_lists")
@settings(max_examples=300, deadline=None)
@given(
    text=texts.filter(lambda text: not BEYOND.search(text)),
    stop=st.lists(st.sampled_from(["a", "É", ".", "the"]), max_size=2),
    customs=st.none() | st.tuples(st.lists(st.sampled_from(PICKS)), st.lists(st.sampled_from(["-", ". ", " ", "…"]))),
    dictionary=st.lists(st.sampled_from(["ab", "a.b", "1.23", "éa"]), max_size=2),
)
def test_tokens_are_those_of_the_oracle(
    text: str, stop: list[str], customs: tuple[list[str], list[str]] | None, dictionary: list[str]
) -> None:
    added, removed = customs or (None, None)
    plain = oracle("ranking").Tokenizer(stop, added, removed, dictionary)
    try:
        expected = [(ORACLE_KINDS[t.kind], t.lemma, t.s, t.e, t.script) for t in plain.tokens(text)]
    except NotImplementedError:
        return
    tokens = Analyzer(stop, added or (), removed or (), dictionary).tokens(text)
    assert [(t.kind, t.lemma, t.start, t.end, t.script) for t in tokens] == expected
