"""The virtual tables: what is said in entries, and the prompt history. Meaning: SCHEMA.md."""

from __future__ import annotations

from typing import Final

# Contentless: the texts are in the lines. Words as engine/words.py spaces them. pgsz: a page of the index fills one of
# the database's.
ENTRY_FTS: Final = """
CREATE VIRTUAL TABLE entry_fts USING fts5(
  call, text, thinking, summary, custom, bash, label, name, other,
  content = '', contentless_delete = 1,
  tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co S* M*' tokenchars '\u166d'"
)
"""

# Tools' results apart: they are two thirds of all words, and in the first column of a table FTS5 needs two bytes less
# for each word of a row. No entry has a result and another text.
RESULT_FTS: Final = """
CREATE VIRTUAL TABLE result_fts USING fts5(
  result,
  content = '', contentless_delete = 1,
  tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co S* M*' tokenchars '\u166d'"
)
"""

BLOCK_BITS: Final = 6
"""A row of either is a slot of a block: the block's key shifted left by this, plus the slot's place in it."""

# As the agents' own: whatever knows their history.db can read ours.
HISTORY_FTS: Final = """
CREATE VIRTUAL TABLE history_fts USING fts5(prompt, content = 'history', content_rowid = 'id')
"""

VIRTUAL_TABLES: Final = {"entry_fts": ENTRY_FTS, "result_fts": RESULT_FTS, "history_fts": HISTORY_FTS}
