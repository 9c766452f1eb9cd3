"""The virtual tables: the index of what is said in entries. Meaning: SCHEMA.md."""

from __future__ import annotations

from typing import Final

# Contentless: the texts are in the lines. Words as engine/words.py spaces them. pgsz: a page of the index fills one of
# the database's.
ENTRY_FTS: Final = """
CREATE VIRTUAL TABLE entry_fts USING fts5(
  result, text, thinking, call, summary, custom, bash, label, name, other,
  content = '', contentless_delete = 1,
  tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co S* M*' tokenchars '\u166d'"
)
"""

BLOCK_BITS: Final = 6
"""A row of entry_fts is a slot of a block: the block's key shifted left by this, plus the slot's place in it."""

VIRTUAL_TABLES: Final = {"entry_fts": ENTRY_FTS}
