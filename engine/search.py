"""What was ever said, found by its words: the text index joined with what is known of entries and sessions."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import apsw

from sessiondb.connection import as_column, select, select_value
from sessiondb.errors import BadQueryError, DamagedDatabaseError
from sessiondb.jsonl import encode_entry
from sessiondb.lines import read_slot
from sessiondb.snippets import snippet_of
from sessiondb.text_index import OTHER_KINDS
from sessiondb.texts import KINDS, texts_of
from sessiondb.words import Span, Term, expression_of, spans_of, terms_of

Order = Literal["rank", "newest"]

# What counts for more when hits are ordered by rank: how a session is called, what was said, and last what tools gave.
WEIGHTS: Final = {
    "call": 1.0, "text": 3.0, "thinking": 1.0, "summary": 3.0, "custom": 2.0, "bash": 1.0, "label": 8.0, "name": 8.0,
    "other": 0.5,
}  # fmt: skip
WEIGHT_OF_RESULT: Final = 0.5

ENTRY_HITS: Final = f"""
  SELECT rowid AS number, bm25(entry_fts, {', '.join(str(WEIGHTS[kind]) for kind in OTHER_KINDS)}) AS rank
  FROM entry_fts WHERE entry_fts MATCH :match
"""

RESULT_HITS: Final = f"""
  SELECT rowid AS number, bm25(result_fts, {WEIGHT_OF_RESULT}) AS rank
  FROM result_fts WHERE result_fts MATCH :result_match
"""

HITS: Final = {
    "all": f"{ENTRY_HITS} UNION ALL {RESULT_HITS}",
    "entries": ENTRY_HITS,
    "results": RESULT_HITS,
}
"""Hits by which indices are asked."""

# The joins follow the indices: from their hits to the slots they are.
NARROWED: Final = """
CROSS JOIN text_block b ON b.pk = f.number >> 6
CROSS JOIN session s ON s.pk = b.first_pk >> 32
LEFT JOIN entry e ON e.pk = b.first_pk + (f.number & 63)
WHERE s.staged_by IS NULL
  AND (:cwd IS NULL OR s.cwd = :cwd)
  AND (:session_pk IS NULL OR s.pk = :session_pk)
  AND (:role IS NULL OR e.role = :role)
  AND (:tool IS NULL OR e.tool = :tool)
  AND (:model IS NULL OR e.model = :model)
  AND (:since IS NULL OR coalesce(e.time_ms, s.created_ms) >= :since)
  AND (:until IS NULL OR coalesce(e.time_ms, s.created_ms) < :until)
"""

IS_ANY_STAGED = "SELECT EXISTS (SELECT 1 FROM session INDEXED BY ix_session_staged WHERE staged_by IS NOT NULL)"

SELECT_HIT = """
SELECT s.pk, s.id, s.cwd, s.title, s.superseded, e.entry_id, e.type, e.role, e.tool, e.model,
       coalesce(e.time_ms, s.created_ms), CAST(l.raw AS BLOB)
FROM line l
CROSS JOIN session s ON s.pk = l.pk >> 32
LEFT JOIN entry e ON e.pk = l.pk
WHERE l.pk = :pk
"""

EXACT_AMONG: Final = 2_000
"""Among how many of the best hits the exact spelling is put first."""

SNIPPET_SIZE: Final = 160
"""Characters of a snippet."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found: in an entry, or the name in a session's header (`entry` is None, `type` "session").

    `kinds` are the kinds of its texts that hold a term; `marks` are pairs of places in `snippet`, begin and end, in
    code points. `rank` is FTS5's bm25, smaller is better; None when the newest come first. `time_ms` is the session's
    beginning where the entry has no time.
    """

    session_pk: int
    session: str
    cwd: str | None
    title: str | None
    superseded: bool
    entry_pk: int
    entry: str | None
    type: str | None
    role: str | None
    tool: str | None
    model: str | None
    time_ms: int | None
    kinds: tuple[str, ...]
    snippet: str
    marks: tuple[Span, ...]
    rank: float | None

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self) | {"kinds": list(self.kinds), "marks": [list(mark) for mark in self.marks]}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`total` hits there are, `hits` of them were asked for; `cut`: there are more behind these.

    `reason` says why there can be no hit: the query has no word in it.
    """

    total: int
    hits: list[Hit]
    cut: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which entries to look in. `kinds`: in which of their texts (see `texts.KINDS`), all when empty; times in ms."""

    kinds: Sequence[str] = ()
    cwd: str | None = None
    session_pk: int | None = None
    role: str | None = None
    tool: str | None = None
    model: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"there is no kind of text {unknown[0]!r}; there are {', '.join(sorted(KINDS))}")

    def values(self) -> dict[str, Any]:
        texts = {"cwd": self.cwd, "role": self.role, "tool": self.tool, "model": self.model}
        held = {name: None if text is None else as_column(text) for name, text in texts.items()}
        return held | {"session_pk": self.session_pk, "since": self.since_ms, "until": self.until_ms}

    @property
    def is_of_entries(self) -> bool:
        return any(value is not None for value in self.values().values())


def search(
    db: apsw.Connection, query: str, where: Narrowing, *, fts: bool = False, order: Order = "rank",
    limit: int | None = 20, offset: int = 0, max_chars: int | None = None,
) -> SearchResult:  # fmt: skip
    """The entries that hold every term of `query` (see `words.terms_of`), or match it as FTS5's own syntax with `fts`.

    With `max_chars` hits are left out from the end until those left, as JSON, have no more characters than that.
    Of texts with the same words those in the query's spelling come first. BadQueryError for wrong FTS5 syntax.
    """
    terms = _words_of_expression(query) if fts else terms_of(query)
    if not terms:
        return SearchResult(0, [], cut=False, reason="there is no word in the query")
    try:
        asked = _Asked(db, _matches(db, query, terms, where.kinds, fts=fts), where)
        spelled = [] if fts or order == "newest" else [term for term in terms if term.is_spelled]
        found = asked.page(order, offset, limit, spelled)
        total = asked.count()
    except apsw.SQLError as error:
        raise BadQueryError(str(error)) from error
    hits = [_hit(db, pk, rank, terms, where.kinds) for pk, rank in found]
    within = _within(hits, max_chars)
    return SearchResult(total, within, cut=offset + len(within) < total)


def _matches(
    db: apsw.Connection, query: str, terms: Sequence[Term], kinds: Sequence[str], *, fts: bool
) -> dict[str, str]:  # fmt: skip
    """What to ask each index, in FTS5's syntax; one that cannot have a hit is left out."""
    match = as_column(query).replace("\0", " ") if fts else expression_of(terms)
    others = [kind for kind in dict.fromkeys(kinds) if kind != "result"]
    matches = {}
    if others or not kinds:
        matches["match"] = f"{{{' '.join(others)}}} : ({match})" if others else match
    if "result" in kinds or not kinds:
        matches["result_match"] = match
    return _known_to_each(db, matches) if fts and len(matches) == 2 else matches


def _known_to_each(db: apsw.Connection, matches: dict[str, str]) -> dict[str, str]:
    """Without the index that does not know a column which the other one has."""
    known: dict[str, str] = {}
    errors: list[apsw.SQLError] = []
    for name, hits in (("match", ENTRY_HITS), ("result_match", RESULT_HITS)):
        try:
            db.execute(f"{hits} LIMIT 1", {name: matches[name]})
            known[name] = matches[name]
        except apsw.SQLError as error:
            errors.append(error)
    if not known:
        raise errors[0]
    return known


def _words_of_expression(query: str) -> list[Term]:
    """What to mark in texts that an expression in FTS5's syntax found."""
    return [term for term in terms_of(query.replace('"', " ")) if term.given not in ("AND", "OR", "NOT", "NEAR")]


class _Asked:
    """A question to the indices: how many hits it has, and their keys in an order."""

    def __init__(self, db: apsw.Connection, matches: dict[str, str], where: Narrowing) -> None:
        self._db = db
        self._hits = HITS["all" if len(matches) == 2 else "entries" if "match" in matches else "results"]
        self._is_narrowed = where.is_of_entries or bool(select_value(db, IS_ANY_STAGED))
        self._values = matches | (where.values() if self._is_narrowed else {})

    def count(self) -> int:
        narrowed = NARROWED if self._is_narrowed else ""
        return int(select_value(self._db, f"SELECT count(*) FROM ({self._hits}) f {narrowed}", self._values))

    def page(
        self, order: Order, offset: int, limit: int | None, spelled: Sequence[Term]
    ) -> list[tuple[int, float | None]]:  # fmt: skip
        """Keys and ranks. Among the best hits those in the spelling of these terms are first."""
        if not spelled or offset >= EXACT_AMONG:
            return self._read(order, offset, limit)
        first = self._read(order, 0, EXACT_AMONG)
        differ = [not _is_spelled(self._db, pk, spelled) for pk, _ in first]
        ordered = [hit for _, hit in sorted(zip(differ, first, strict=True), key=lambda pair: pair[0])]
        if len(ordered) == EXACT_AMONG:
            left = None if limit is None else max(0, offset + limit - EXACT_AMONG)
            ordered += self._read(order, EXACT_AMONG, left)
        return ordered[offset:] if limit is None else ordered[offset : offset + limit]

    def _read(self, order: Order, offset: int, limit: int | None) -> list[tuple[int, float | None]]:
        page = {"limit": -1 if limit is None else limit, "offset": offset}
        statement = self._newest() if order == "newest" else self._best()
        return [(pk, rank) for pk, rank in select(self._db, statement, self._values | page)]

    def _best(self) -> str:
        narrowed = NARROWED if self._is_narrowed else ""
        key = "b.first_pk" if narrowed else "(SELECT b.first_pk FROM text_block b WHERE b.pk = f.number >> 6)"
        return (
            f"SELECT {key} + (f.number & 63), f.rank FROM ({self._hits}) f {narrowed} "
            "ORDER BY f.rank, f.number LIMIT :limit OFFSET :offset"
        )

    def _newest(self) -> str:
        narrowed = NARROWED if self._is_narrowed else NARROWED.partition("WHERE")[0]
        return (
            f"SELECT b.first_pk + (f.number & 63), NULL FROM ({self._hits}) f {narrowed} "
            "ORDER BY coalesce(e.time_ms, s.created_ms) DESC, b.first_pk + (f.number & 63) DESC "
            "LIMIT :limit OFFSET :offset"
        )


def _is_spelled(db: apsw.Connection, pk: int, terms: Iterable[Term]) -> bool:
    said = "\n".join(text for _, text in _texts_of_slot(_read_hit(db, pk)[-1])).casefold()
    return all(term.given.casefold() in said for term in terms)


def _read_hit(db: apsw.Connection, pk: int) -> tuple[Any, ...]:
    row = next(select(db, SELECT_HIT, {"pk": pk}), None)
    if row is None:
        raise DamagedDatabaseError(db.filename, "its text index has words of lines that are not there: `reindex` it")
    return row


def _texts_of_slot(raw: bytes) -> list[tuple[str, str]]:
    """The texts in a slot's bytes, with their kinds, composed as they are indexed."""
    value = read_slot(raw)
    texts = texts_of(value) if type(value) is dict else {}
    return [(kind, unicodedata.normalize("NFC", as_column(texts[kind]))) for kind in KINDS if kind in texts]


def _hit(db: apsw.Connection, pk: int, rank: float | None, terms: Sequence[Term], kinds: Sequence[str]) -> Hit:
    session_pk, session, cwd, title, superseded, entry, *columns, raw = _read_hit(db, pk)
    entry_type, role, tool, model, time_ms = columns
    texts = [(kind, text) for kind, text in _texts_of_slot(raw) if not kinds or kind in kinds]
    spans = [spans_of(text, terms) for _, text in texts]
    best = max(range(len(texts)), key=lambda at: (len(_terms_in(texts[at][1], terms)), -at)) if len(texts) > 1 else 0
    snippet, marks = snippet_of(texts[best][1], spans[best], SNIPPET_SIZE)
    return Hit(
        session_pk, session, cwd, title, bool(superseded), pk, entry, entry_type or "session", role, tool, model,
        time_ms, tuple(kind for (kind, _), found in zip(texts, spans, strict=True) if found), snippet, tuple(marks),
        rank,
    )  # fmt: skip


def _terms_in(text: str, terms: Sequence[Term]) -> list[Term]:
    return [term for term in terms if spans_of(text, [term])]


def _within(hits: list[Hit], max_chars: int | None) -> list[Hit]:
    if max_chars is None:
        return hits
    left = max_chars
    for number, hit in enumerate(hits):
        left -= len(encode_entry(hit.to_dict()).decode())
        if left < 0:
            return hits[:number]
    return hits
