"""Blobs as the agents keep them: a folder with a file for each, named by its digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sessiondb.blobs import is_digest
from sessiondb.file_storage import FileSessionStorage
from sessiondb.storage import SessionStorage, decode_text, encode_text


class FileBlobs:
    """The blobs in `folder`, where new ones go too, and in the `others`."""

    def __init__(self, folder: Path, *others: Path, storage: SessionStorage | None = None) -> None:
        self._folders = (folder, *others)
        self._storage = storage or FileSessionStorage()

    def put(self, content: bytes) -> str:
        """Keep the bytes; their digest is returned, and they are on the disk when it is.

        Whoever looks sees the whole file or none. A file of that name with other bytes, as a crash may leave one, is
        replaced. Raises OSError when it cannot be written.
        """
        digest = hashlib.sha256(content).hexdigest()
        if self.get(digest) is None:
            self._storage.write_text(self._folders[0] / digest, decode_text(content))
        return digest

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None when there is no regular file that can be read and has that digest.

        Only 64 lower-case hex digits are ever looked for: anything else could lead anywhere.
        """
        for folder in self._folders if is_digest(digest) else ():
            content = self._read(folder / digest)
            if content is not None and hashlib.sha256(content).hexdigest() == digest:
                return content
        return None

    def _read(self, path: os.PathLike[str]) -> bytes | None:
        try:
            return encode_text(self._storage.read_text(path))
        except OSError:
            return None
