"""What was ever said, found by its words: the text index joined with what is known of entries and sessions."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import apsw

from sessiondb.connection import as_column, select, select_value
from sessiondb.errors import BadQueryError
from sessiondb.jsonl import encode_entry
from sessiondb.lines import read_slot
from sessiondb.snippets import snippet_of
from sessiondb.texts import KINDS, texts_of
from sessiondb.words import Span, Term, expression_of, spans_of, terms_of

Order = Literal["rank", "newest"]

# What counts for more when hits are ordered by rank: how a session is called, what was said, and last what tools gave.
WEIGHTS: Final = {
    "result": 0.5, "text": 3.0, "thinking": 1.0, "call": 1.0, "summary": 3.0, "custom": 2.0, "bash": 1.0, "label": 8.0,
    "name": 8.0, "other": 0.5,
}  # fmt: skip

RANK: Final = f"bm25({', '.join(str(WEIGHTS[kind]) for kind in KINDS)})"

# The joins follow the index: from its hits to the slots they are.
FROM_HITS: Final = """
FROM entry_fts f
CROSS JOIN text_block b ON b.pk = f.rowid >> 6
CROSS JOIN session s ON s.pk = b.first_pk >> 32
LEFT JOIN entry e ON e.pk = b.first_pk + (f.rowid & 63)
WHERE f.entry_fts MATCH :match
  AND s.staged_by IS NULL
  AND (:cwd IS NULL OR s.cwd = :cwd)
  AND (:session_pk IS NULL OR s.pk = :session_pk)
  AND (:role IS NULL OR e.role = :role)
  AND (:tool IS NULL OR e.tool = :tool)
  AND (:model IS NULL OR e.model = :model)
  AND (:since IS NULL OR coalesce(e.time_ms, s.created_ms) >= :since)
  AND (:until IS NULL OR coalesce(e.time_ms, s.created_ms) < :until)
"""

SELECT_BEST = f"""
SELECT b.first_pk + (f.rowid & 63), f.rank
{FROM_HITS}
  AND f.rank MATCH '{RANK}'
ORDER BY f.rank, f.rowid
LIMIT :limit OFFSET :offset
"""

SELECT_NEWEST = f"""
SELECT b.first_pk + (f.rowid & 63), NULL
{FROM_HITS}
ORDER BY coalesce(e.time_ms, s.created_ms) DESC, b.first_pk + (f.rowid & 63) DESC
LIMIT :limit OFFSET :offset
"""

COUNT_HITS = f"""
SELECT count(*)
{FROM_HITS}
"""

# Without filters, and with no session staged: the index alone knows.
SELECT_BEST_OF_ALL = f"""
SELECT (SELECT b.first_pk FROM text_block b WHERE b.pk = f.rowid >> 6) + (f.rowid & 63), f.rank
FROM entry_fts f
WHERE f.entry_fts MATCH :match
  AND f.rank MATCH '{RANK}'
ORDER BY f.rank
LIMIT :limit OFFSET :offset
"""

COUNT_ALL_HITS = "SELECT count(*) FROM entry_fts WHERE entry_fts MATCH :match"

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
    match = as_column(query).replace("\0", " ") if fts else expression_of(terms)
    if where.kinds:
        match = f"{{{' '.join(dict.fromkeys(where.kinds))}}} : ({match})"
    values = where.values() | {"match": match}
    is_plain = not where.is_of_entries and not select_value(db, IS_ANY_STAGED)
    try:
        total = int(select_value(db, COUNT_ALL_HITS if is_plain else COUNT_HITS, _used(values, is_plain)))
        best = SELECT_BEST_OF_ALL if is_plain else SELECT_BEST
        statement = best if order == "rank" else SELECT_NEWEST
        ranked = _Ranked(db, statement, _used(values, statement is SELECT_BEST_OF_ALL))
        found = ranked.page(offset, limit, [] if fts or order == "newest" else [t for t in terms if t.is_spelled])
    except apsw.SQLError as error:
        raise BadQueryError(str(error)) from error
    hits = [_hit(db, pk, rank, terms, where.kinds) for pk, rank in found]
    within = _within(hits, max_chars)
    return SearchResult(total, within, cut=offset + len(within) < total)


def _used(values: dict[str, Any], is_plain: bool) -> dict[str, Any]:
    return {"match": values["match"]} if is_plain else values


def _words_of_expression(query: str) -> list[Term]:
    """What to mark in texts that an expression in FTS5's syntax found."""
    return [term for term in terms_of(query.replace('"', " ")) if term.given not in ("AND", "OR", "NOT", "NEAR")]


class _Ranked:
    """The keys of hits in their order."""

    def __init__(self, db: apsw.Connection, statement: str, values: dict[str, Any]) -> None:
        self._db, self._statement, self._values = db, statement, values

    def page(self, offset: int, limit: int | None, spelled: Sequence[Term]) -> list[tuple[int, float | None]]:
        if not spelled or offset >= EXACT_AMONG:
            return self._read(offset, limit)
        first = self._read(0, EXACT_AMONG)
        exact = [not _is_spelled(self._db, pk, spelled) for pk, _ in first]
        ordered = [hit for _, hit in sorted(zip(exact, first, strict=True), key=lambda pair: pair[0])]
        if len(ordered) == EXACT_AMONG:
            ordered += self._read(EXACT_AMONG, None if limit is None else max(0, offset + limit - EXACT_AMONG))
        return ordered[offset:] if limit is None else ordered[offset : offset + limit]

    def _read(self, offset: int, limit: int | None) -> list[tuple[int, float | None]]:
        page = {"limit": -1 if limit is None else limit, "offset": offset}
        return [(pk, rank) for pk, rank in select(self._db, self._statement, self._values | page)]


def _is_spelled(db: apsw.Connection, pk: int, terms: Iterable[Term]) -> bool:
    said = "\n".join(text for _, text in _texts_of_slot(next(select(db, SELECT_HIT, {"pk": pk}))[-1])).casefold()
    return all(term.given.casefold() in said for term in terms)


def _texts_of_slot(raw: bytes) -> list[tuple[str, str]]:
    """The texts in a slot's bytes, with their kinds, composed as they are indexed."""
    value = read_slot(raw)
    texts = texts_of(value) if type(value) is dict else None
    return [
        (kind, unicodedata.normalize("NFC", as_column(text)))
        for kind, text in zip(KINDS, texts or (), strict=bool(texts))
        if text is not None
    ]


def _hit(db: apsw.Connection, pk: int, rank: float | None, terms: Sequence[Term], kinds: Sequence[str]) -> Hit:
    session_pk, session, cwd, title, superseded, entry, *columns, raw = next(select(db, SELECT_HIT, {"pk": pk}))
    entry_type, role, tool, model, time_ms = columns
    texts = [(kind, text) for kind, text in _texts_of_slot(raw) if not kinds or kind in kinds]
    spans = [spans_of(text, terms) for _, text in texts]
    best = max(range(len(texts)), key=lambda at: (len(_terms_in(texts[at][1], terms)), -at))
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
