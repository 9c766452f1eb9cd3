"""Any text may be looked for, in any script; what is a word is the same in the index and in a query."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import pytest

from sessiondb import SessionManager, Store
from sessiondb.words import expression_of, spaced, spans_of, terms_of
from tests.support import OpenStore, entry, header, write
from tests.test_live_tree import user

NO_ERROR = (
    "", " ", "\t\n", '"', '""', '"""', "'", "*", "**", "%", "_", "-", "--", "::", ":", "(", ")", "()", "NEAR(",
    "NEAR(a b)", "AND", "OR", "NOT", "a AND", "a OR b", "{text}: x", "text: x", "^a", "a^b", "a + b", "don't",
    "grammar::fa", "line=12", "wrong-book", "x\0y", "\0", "🚀", "👩\u200d💻", "\ud800", "a\udfffb", "\ufffd",
    "a" * 10_000, "a " * 5_000, '"' * 9_999,
    "( " * 3_000, "e\u0301", "\u0301", "\u200d", "½", "ß", "İ", "ﬁ", "\ufeff", "\u2028", "'; DROP TABLE entry; --",
)  # fmt: skip


class Said:
    """A session in which some texts were said, one message each."""

    def __init__(self, store: Store, *texts: str) -> None:
        self.store = store
        self.manager = SessionManager.create("/w", store=store, dialect="pi")
        self.manager.ensure_on_disk()
        self.ids = [self.manager.append_message(user(text)) for text in texts]

    def found(self, query: str) -> list[int]:
        """The numbers of the texts that are found, in order."""
        hits = self.store.search(query, limit=None, session=self.manager.get_session_id()).hits
        return sorted(self.ids.index(hit.entry) for hit in hits if hit.entry in self.ids)


def test_no_text_is_an_error(store: Store) -> None:
    said = Said(store, "something")
    for query in NO_ERROR:
        result = store.search(query)
        assert (result.reason is not None) == (terms_of(query) == []), query
    assert said.found("something") == [0]


@pytest.mark.parametrize("seed", [0, 1])
def test_random_texts_are_found_by_themselves_and_by_their_words(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    alphabet = "ab_-. \n\"'*:()$+=<>|~`^\\/é\u0301ßİ中文字あいう한국어ไทยहिन्दीשָׁלאب🚀👩\u200d💻→½①\ufe0f\u00ad\0"
    texts = ["".join(rng.choices(alphabet, k=rng.randint(1, 30))) for _ in range(150)]
    said = Said(store, *texts)
    for number, text in enumerate(texts):
        if terms_of(text.replace('"', " ").replace("*", " ")):
            assert number in said.found(text.replace('"', " ").replace("*", " ")), text
            assert number in said.found(f'"{text.replace(chr(34), " ")}"'), text
        for term in terms_of(text):
            assert number in said.found(" ".join(term.words).replace("*", "")) or term.is_prefix, (text, term)


CHINESE = "修改youer服务端的计划,昨晚旅游"


UNSPACED = (CHINESE, "カタカナとひらがなmixed漢字", "검색한국어 문장입니다", "ค้นหาภาษาไทย", "ខ្មែរ", "𠀀𠀁𪜀")


@pytest.mark.parametrize("text", UNSPACED, ids=lambda text: text[:4])
def test_every_part_of_a_text_without_spaces_is_found(store: Store, text: str) -> None:
    said = Said(store, text, "something else", text[::-1])
    latin = [part for part in ("youer", "mixed") if part in text]
    parts = {text[i:j] for i in range(len(text)) for j in range(i + 1, min(len(text), i + 5) + 1)}
    for part in parts:
        if terms_of(part) and not any(char.isascii() and char.isalpha() for char in part):
            assert 0 in said.found(part), part
    for part in latin:
        assert 0 in said.found(part)
    assert said.found("昨天") == []


def test_what_is_not_said_is_not_found_in_scripts_without_spaces(store: Store) -> None:
    said = Said(store, "昨晚旅游", "昨夜", "晚昨", "กา", "กี")
    assert said.found("昨晚") == [0]
    assert said.found("昨") == [0, 1, 2]
    assert said.found("กา") == [3]
    assert said.found("กี") == [4]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("naïve café", ("naive", "CAFE", "café", "cafe\u0301")),
        ("cafe\u0301", ("café", "cafe")),
        ("שָׁלוֹם", ("שלום", "שָׁלוֹם")),
        ("السَّلامُ", ("السلام",)),
        ("ДОМ и лес", ("дом", "Лес")),
        ("Straße", ("straße", "STRAßE")),
    ],
)
def test_accents_and_letter_case_are_no_matter(store: Store, text: str, queries: tuple[str, ...]) -> None:
    said = Said(store, text, "another")
    for query in queries:
        assert said.found(query) == [0], query


def test_symbols_and_emoji_are_words(store: Store) -> None:
    said = Said(store, "C++ and C", "only C", "done🚀now", "a=b", "5€ → 6€", "🫠", "👩\u200d💻", "x$HOME")
    for query, numbers in {
        "C++": [0], "C": [0, 1], "🚀": [2], "done": [2], "now": [2], "a=b": [3], "=": [3], "b": [3], "€": [4], "→": [4],
        "🫠": [5], "👩": [6], "👩\u200d💻": [6], "💻": [6], "$HOME": [7], "HOME": [7], "6€": [4], "7€": [],
    }.items():  # fmt: skip
        assert said.found(query) == numbers, query


def test_every_character_that_is_a_word_is_found(store: Store) -> None:
    rng = random.Random(7)
    kinds: dict[str, list[str]] = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Co", "Cs"):
            kinds.setdefault(category, []).append(chr(code))
    chosen = [char for chars in kinds.values() for char in rng.sample(chars, min(40, len(chars)))]
    said = Said(store, *(f"foo {char} bar" for char in chosen))
    for number, char in enumerate(chosen):
        category = unicodedata.category(char)[0]
        is_word = category in "LNS" or (category == "M" and spaced(char).strip() != "")
        assert bool(terms_of(char)) == is_word, hex(ord(char))
        if is_word:
            assert number in said.found(char), hex(ord(char))


def test_punctuation_separates_words_and_the_exact_spelling_comes_first(store: Store) -> None:
    said = Said(store, "a b", "a_b", "a-b", "b a", "xa_b", "a\nb")
    assert said.found("a_b") == [0, 1, 2, 5]
    assert said.found("a b") == [0, 1, 2, 3, 5]
    for query, first in {"a_b": 1, "a-b": 2}.items():
        hits = store.search(query).hits
        assert said.ids.index(hits[0].entry or "") == first
        pages = [store.search(query, limit=1, offset=offset).hits[0].entry for offset in range(4)]
        assert pages == [hit.entry for hit in hits]


def test_a_closed_pair_of_quotes_is_a_phrase_and_a_trailing_star_a_prefix(store: Store) -> None:
    said = Said(store, "build failed again", "again the build failed", "builder failed")
    assert said.found('"build failed"') == [0, 1]
    assert said.found('"failed again"') == [0]
    assert said.found('"failed again') == [0, 1]
    assert said.found('again"build failed"') == [0, 1]
    assert said.found("build*") == [0, 1, 2]
    assert said.found("build* again") == [0, 1]
    assert said.found("*build") == [0, 1]
    assert said.found("b*d") == []
    assert said.found('"build*"') == [0, 1]


def test_a_word_in_a_lone_surrogate_or_behind_a_nul_is_found(store: Store, tmp_path: Path) -> None:
    line = entry(1, None, "WORDS").replace(b"WORDS", rb"before\ud800after nul\u0000behind")
    path = write(tmp_path / "s.jsonl", header("s"), line)
    store.import_paths([path])
    for word in ("before", "after", "behind", "\ud800", "\ufffd", "nul\0behind"):
        assert [hit.entry for hit in store.search(word).hits] == ["00000001"], repr(word)


def test_matches_are_marked_where_they_stand() -> None:
    def marked(text: str, query: str) -> list[str]:
        return [text[begin:end] for begin, end in spans_of(text, terms_of(query))]

    assert marked("The café is off; cafés are on", "cafe") == ["café"]
    assert marked("self.assertEqual(a, b)", "self.assertequal") == ["self.assertEqual"]
    assert marked("Foo_bar foo-bar foobar", "foo_bar") == ["Foo_bar", "foo-bar"]
    assert marked("修改youer服务端", "服务 youer") == ["youer", "服务"]
    assert marked("a=b, a = b, ab", "a=b") == ["a=b", "a = b"]
    assert marked("builds build rebuild", "build*") == ["builds", "build"]
    assert marked("aa aa aa", '"aa aa"') == ["aa aa"]


def test_queries_in_the_indexs_own_syntax() -> None:
    assert expression_of(terms_of('say "hello world" wor* a_b')) == '"say" AND "hello world" AND "wor"* AND "a b"'
    assert expression_of(terms_of('gi"t', prefixes=True)) == '"gi t"*'
    assert terms_of("again again") == terms_of("again")


def test_a_database_that_is_open_elsewhere_is_searched_too(open_store: OpenStore) -> None:
    writer, reader = open_store(), open_store(read_only=False)
    said = Said(writer, "from another store")
    assert [hit.entry for hit in reader.search("another").hits] == said.ids
