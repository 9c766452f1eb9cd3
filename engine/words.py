"""Words: what the text index is given for a text, what it is asked for a query, and where the words of a text stand.

The index's own tokenizer (FTS5's unicode61) takes a run of letters, digits, symbols and marks for one word. So texts
are *spaced* before they go in, and queries in the same way: a word of its own is each character of the scripts that are
written without spaces, each symbol and emoji, and each mark that is no accent. Accents are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sessiondb.connection import as_column

ASCII_SYMBOLS: Final = "$+<=>^`|~"
"""What is ASCII and a symbol (categories S*): the other punctuation separates words."""

# Letters that unicode61 takes as they are, of scripts with spaces; whatever else is not ASCII is looked up.
PLAIN: Final = (
    "\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u0386\u0388-\u038a"
    "\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u0527\u0531-\u0556\u0561-\u0587\u05d0-\u05ea\u0620-\u064a"
    "\u0660-\u0669\u0671-\u06d3\u10d0-\u10f0\u1e00-\u1eff"
)

ODD: Final = re.compile(f"[^\x00-\x7f{PLAIN}]+")

# Written without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer; Hangul, since parts of its words are asked
# for as well; kana, bopomofo, Yi, Han, half-width forms.
WITHOUT_SPACES: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\u2fff\u3005-\u3007"
    "\u3021-\u3029\u3031-\u303c\u3040-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uaa60-\uaa7f"
    "\uac00-\ud7ff\uf900-\ufaff\uff65-\uffdc\U0001b000-\U0001b2ff\U00020000-\U0003ffff]"
)

# Accents and vowel points (Latin, Greek, Cyrillic, Hebrew, Arabic), variation selectors: a word is the same without.
ACCENTS: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f"
    "\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)


class _Spaced(dict[str, str]):
    """What each character that is not plain becomes; filled as they come."""

    def __missing__(self, char: str) -> str:
        spaced = self[char] = _spaced_char(char)
        return spaced


def _spaced_char(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cf" or ACCENTS.match(char):
        return ""
    if category[0] in "PZ" or category == "Cc":
        return " "
    return char if category[0] in "LN" and not WITHOUT_SPACES.match(char) else f" {char} "


SPACED: Final = _Spaced()


def spaced(text: str) -> str:
    """A text as the index takes it. Composed first (NFC), so that what can be typed in two ways is one."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    for symbol in ASCII_SYMBOLS:
        if symbol in text:
            text = text.replace(symbol, f" {symbol} ")
    return text if text.isascii() else ODD.sub(_spaced_run, text)


def _spaced_run(match: re.Match[str]) -> str:
    return "".join(map(SPACED.__getitem__, match[0]))


# -- queries -------------------------------------------------------------------------------------------------------

PARTS: Final = re.compile(r'"([^"]*)"|([^\s"]+|")')
"""A phrase in a closed pair of quotes, or what stands between blanks and quotes."""

WORD: Final = re.compile(f"[0-9A-Za-z\x80-\U0010ffff]+|[{re.escape(ASCII_SYMBOLS)}]")
"""A word of a spaced text."""

PLAIN_WORD: Final = re.compile(f"[0-9A-Za-z{PLAIN}]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a text must contain: these words in a row, the last one perhaps only begun.

    `given` is as the user wrote it, without the operators.
    """

    given: str
    words: tuple[str, ...]
    is_prefix: bool = False

    @property
    def expression(self) -> str:
        """In FTS5's syntax."""
        return '"' + " ".join(self.words) + '"' + "*" * self.is_prefix

    @property
    def is_spelled(self) -> bool:
        """Whether texts without this spelling have the words as well, so that it matters which come first."""
        return len(self.words) > 1 and not any(map(str.isspace, self.given)) and self.given.isascii()


def terms_of(query: str, *, prefixes: bool = False) -> list[Term]:
    """What a query asks for: every one of these terms; none when there is no word in it. Takes any text.

    A trailing `*` makes a word a prefix, a closed pair of double quotes makes a phrase; nothing else is an operator.
    What stands between blanks is a phrase of its words: `a_b` is `a b`. With `prefixes` there are no operators, and
    each term is a prefix.
    """
    if prefixes:
        found = [(given, True) for given in query.split()]
    else:
        found = [_begun(word) if word else (phrase, False) for phrase, word in PARTS.findall(query)]
    terms = (Term(given, words_of(given), is_prefix) for given, is_prefix in found)
    return [term for term in dict.fromkeys(terms) if term.words]


def _begun(word: str) -> tuple[str, bool]:
    begun = word.rstrip("*")
    return begun, begun != word


def words_of(text: str) -> tuple[str, ...]:
    """The words of any text, as the index has them but for letter case and accents."""
    return tuple(WORD.findall(spaced(as_column(text))))


def is_tokenized_alike(term: Term) -> bool:
    """Whether FTS5's tokenizer alone, without our spaces, finds the same words: letters and digits of plain scripts."""
    return all(PLAIN_WORD.fullmatch(word) for word in term.words)


def expression_of(terms: Iterable[Term]) -> str:
    """All of them, in FTS5's syntax."""
    return " AND ".join(term.expression for term in terms)


# -- where words stand ---------------------------------------------------------------------------------------------

Span = tuple[int, int]

NO_WORD: Final = r"[\W_]"
ALPHANUMERIC: Final = re.compile("[0-9A-Za-z]+")


def spans_of(text: str, terms: Iterable[Term]) -> list[Span]:
    """Where the terms stand in a text, in order and without overlaps. For showing only: the index decides.

    Letter case aside, and accents where the text has other ones than the term.
    """
    found: list[Span] = []
    for term in terms:
        spans = _spans(text, term.words, is_prefix=term.is_prefix)
        if not spans and not text.isascii():
            spans = _spans_without_accents(text, term)
        found += spans
    return _merged(sorted(found))


def _spans(text: str, words: tuple[str, ...], *, is_prefix: bool) -> list[Span]:
    return [match.span() for match in _pattern(words, is_prefix=is_prefix).finditer(text)]


def _spans_without_accents(text: str, term: Term) -> list[Span]:
    bare, places = _bare(text)
    words = tuple(_bare(word)[0] for word in term.words)
    return [(places[start], places[end - 1] + 1) for start, end in _spans(bare, words, is_prefix=term.is_prefix)]


def _bare(text: str) -> tuple[str, list[int]]:
    """The text without accents, and where each of its characters stands in the text."""
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        for part in unicodedata.normalize("NFD", char):
            if not ACCENTS.match(part):
                chars.append(part)
                places.append(place)
    return "".join(chars), places


def _pattern(words: tuple[str, ...], *, is_prefix: bool) -> re.Pattern[str]:
    parts = [re.escape(words[0])]
    for before, word in pairwise(words):
        both = ALPHANUMERIC.fullmatch(before) and ALPHANUMERIC.fullmatch(word)
        parts.append(NO_WORD + ("+?" if both else "*?") + re.escape(word))
    begin = r"(?<![0-9A-Za-z])" if ALPHANUMERIC.match(words[0]) else ""
    end = r"(?![0-9A-Za-z])" if ALPHANUMERIC.fullmatch(words[-1]) else ""
    if is_prefix and end:
        end = "[0-9A-Za-z]*"
    return re.compile(begin + "".join(parts) + end, re.IGNORECASE)


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
