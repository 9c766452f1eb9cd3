"""What xcsh cuts, drops and moves out of a line is what we write, and every image comes back."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from sessiondb import Store, size_control
from sessiondb.blobs import Blobs
from sessiondb.file_blobs import FileBlobs
from sessiondb.jsonl import UNSET, encode_entry
from sessiondb.memory_storage import MemorySessionStorage
from sessiondb.size_control import (
    LONGEST_STRING,
    NOTICE,
    decode_base64,
    for_disk,
    from_disk,
    needs_control,
    needs_restoring,
)
from tests.support import sha

RECORDED: Final = json.loads((Path(__file__).parent / "golden/persist.json").read_bytes())["messages"]

BYTES: Final = bytes(i % 251 for i in range(900))
CANONICAL: Final = base64.b64encode(BYTES).decode()
PADDED: Final = base64.b64encode(bytes(i % 251 for i in range(901))).decode()
ONE: Final = f"blob:sha256:{sha(BYTES)}"
EMOJI: Final = "\U0001f600"



def blobs_in_memory() -> FileBlobs:
    return FileBlobs(Path("/agent/blobs"), storage=MemorySessionStorage())


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def image(data: str, **more: Any) -> dict[str, Any]:
    return {"type": "image", "data": data, **more}


def assistant(block: dict[str, Any]) -> dict[str, Any]:
    counts = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    usage = {**counts, "totalTokens": 0, "cost": {**counts, "total": 0}}
    return {"role": "assistant", "content": [block], "provider": "p", "model": "m", "usage": usage}


def mention(content: str, lines: int, **more: Any) -> dict[str, Any]:
    return {"role": "fileMention", "files": [{"path": "a", "content": content, "lineCount": lines, **more}]}


def tool_result(details: dict[str, Any]) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": "1", "toolName": "x", "content": [], "details": details}


def no_blob_is_missing(digest: str) -> None:
    raise AssertionError(f"{digest} is missing")


def restored(value: Any, blobs: Blobs) -> Any:
    return from_disk(value, blobs, on_missing=no_blob_is_missing)


def written(value: Any, blobs: Blobs | None = None) -> Any:
    return for_disk(value, blobs_in_memory() if blobs is None else blobs, dialect="xcsh")


def described(value: Any) -> Any:
    """Long strings as the recording describes them."""
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, list):
        return [described(item) for item in value]
    if not isinstance(value, str) or len(value) < 300:
        return value
    return {
        "utf16_length": len(value.encode("utf-16-le")) // 2,
        "head": value[:24],
        "tail": value[-56:],
        "sha256_utf8": sha(value.encode()),
    }


# -- what the client was seen to write ----------------------------------------------------------------------------

INPUTS: Final[dict[str, dict[str, Any]]] = {
    "text_exactly_500000": user("x" * 500_000),
    "text_500001": user("x" * 500_001),
    "astral_at_the_cut": user("x" * 499_950 + EMOJI * 100),
    "astral_counts_as_two": user(EMOJI * 250_001),
    "line_count": mention("l\n" * 250_001, 250_002),
    "line_count_untouched": mention("l\nl", 99),
    "line_count_other_change": mention("l\nl", 99, jsonlEvents=[1]),
    "transient": assistant({"type": "toolCall", "id": "1", "name": "n", "arguments": {"k": 1}, "partialJson": "{"}),
    "long_thinking_signature": assistant({"type": "thinking", "thinking": "t", "thinkingSignature": "s" * 500_001}),
    "long_thinking_unsigned": assistant({"type": "thinking", "thinking": "t" * 500_001}),
    "long_thinking_signed": assistant({"type": "thinking", "thinking": "t" * 500_001, "thinkingSignature": "sig"}),
    "image_1023": user([image("A" * 1023, mimeType="image/png")]),
    "image_1024": user([image("A" * 1024, mimeType="image/png")]),
    "image_real": user([{"type": "image", "mimeType": "image/jpeg", "data": CANONICAL, "extra": 1}]),
    "image_not_canonical": user([image(CANONICAL[:600] + "\n" + CANONICAL[600:], mimeType="image/png")]),
    "image_outside_content": tool_result(
        {
            "images": [image(CANONICAL, mimeType="image/png")],
            "other": image(PADDED, mimeType="image/png"),
        }
    ),
    "image_nested_content": tool_result({"content": [image(CANONICAL, mimeType="image/png")]}),
    "image_url_data": user([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]),
    "image_url_http": user([{"type": "input_image", "image_url": "https://x/y.png"}]),
    "already_a_ref": user([image(f"blob:sha256:{'0' * 64}{'A' * 1000}", mimeType="image/png")]),
}


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["case"])
def test_a_message_is_written_and_read_as_the_client_does(row: dict[str, Any]) -> None:
    given, blobs = INPUTS[row["case"]], blobs_in_memory()
    line = written(given, blobs)
    assert json.dumps(described(line)) == json.dumps(row["persisted"])
    for digest in row.get("new_blob_files", []):
        assert blobs.get(digest) is not None
    assert needs_control(encode_entry(given)) or line is given
    loaded = restored(line, blobs)
    nested_images_too = row["case"] == "image_nested_content"  # the client leaves a reference there
    if nested_images_too or row.get("same_after_reload", True):
        assert loaded == given
    else:
        assert json.dumps(described(loaded)) == json.dumps(row["reloaded"])


def test_every_recorded_case_has_its_input() -> None:
    assert [row["case"] for row in RECORDED] == list(INPUTS)


# -- cutting ------------------------------------------------------------------------------------------------------

KEPT: Final = LONGEST_STRING - len(NOTICE)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("é" * 500_001, "é" * KEPT, id="two bytes a character"),
        pytest.param("漢" * 600_000, "漢" * KEPT, id="three bytes a character"),
        pytest.param("x" * (KEPT - 1) + EMOJI * 30, "x" * (KEPT - 1), id="a pair would be split"),
        pytest.param("x" * (KEPT - 2) + EMOJI * 30, "x" * (KEPT - 2) + EMOJI, id="a pair just fits"),
        pytest.param("x" + EMOJI * 250_000, "x" + EMOJI * ((KEPT - 1) // 2), id="fewer code points than units"),
        pytest.param("\udc00" * 500_001, "\udc00" * KEPT, id="lone second halves"),
        pytest.param("\ud800" * 500_001, "\ud800" * (KEPT - 1), id="lone first halves, the last one dropped"),
        pytest.param("\n" * 500_001, "\n" * KEPT, id="two bytes each in the line"),
    ],
)
def test_a_long_string_is_cut_at_utf_16_units(text: str, kept: str) -> None:
    assert written({"deep": [{"a": text}]}) == {"deep": [{"a": kept + NOTICE}]}


@pytest.mark.parametrize("text", [EMOJI * 250_000, "é" * 500_000, "x" * 499_998 + EMOJI], ids=["astral", "é", "mixed"])
def test_a_string_of_exactly_the_limit_is_not_cut(text: str) -> None:
    entry = {"a": text}
    assert written(entry) is entry


def test_a_plain_value_in_an_entry_s_place_is_cut_too() -> None:
    assert written("x" * 500_001) == "x" * KEPT + NOTICE
    assert written(42) == 42


@pytest.mark.parametrize("key", ["thinkingSignature", "thoughtSignature", "textSignature"])
def test_an_over_long_signature_is_emptied_and_keeps_its_place(key: str) -> None:
    long = {"a": 1, key: "s" * 500_001, "b": 2}
    assert list(written(long).items()) == [("a", 1), (key, ""), ("b", 2)]
    fits = {key: "s" * 500_000}
    assert written(fits) is fits


def test_what_streaming_left_behind_is_dropped_whatever_it_holds() -> None:
    entry = {"jsonlEvents": None, "a": [{"partialJson": {"x": "y" * 600_000}, "k": 1}, {"jsonlEvents": []}]}
    assert written(entry) == {"a": [{"k": 1}, {}]}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"content": "a\nb\n", "lineCount": 7, "deep": [{"partialJson": 1}]}, 3),
        ({"content": "", "lineCount": 0.5, "partialJson": 1}, 1),
        ({"content": "a\r\nb\u2028c", "lineCount": 0, "partialJson": 1}, 2),
        ({"content": "a\nb", "lineCount": True, "partialJson": 1}, True),
        ({"content": "a\nb", "lineCount": "7", "partialJson": 1}, "7"),
        ({"content": ["a\nb"], "lineCount": 7, "partialJson": 1}, 7),
        ({"content": "a\nb", "lineCount": 7}, 7),
    ],
    ids=["a change below", "empty", "newlines only", "no number", "text", "content is no string", "nothing changed"],
)
def test_lines_are_recounted_when_anything_in_the_object_changed(item: dict[str, Any], expected: Any) -> None:
    line = written({"files": [item], "lineCount": 5, "content": None, "partialJson": ""})
    assert line["files"][0]["lineCount"] is expected or line["files"][0]["lineCount"] == expected
    assert line["lineCount"] == 5


# -- images -------------------------------------------------------------------------------------------------------

URL: Final = "data:image/png;base64," + CANONICAL

ROUND_TRIPS: Final[list[Any]] = [
    pytest.param(user([image(CANONICAL)]), id="in a message"),
    pytest.param({"type": "custom_message", "content": [image(PADDED, x=1)]}, id="in an entry"),
    pytest.param(tool_result({"a": [{"content": [[image(CANONICAL)]]}]}), id="nested, in a list of lists"),
    pytest.param({"image_url": URL}, id="URL"),
    pytest.param({"a": [{"image_url": ["data:image/x;base64,", URL]}]}, id="URLs in a list"),
    pytest.param({"image_url": {"image_url": "data:image/é;base64,\U0001f600"}}, id="URL that is no ASCII"),
    pytest.param(user([image(b64(b"x" * 900_000))]), id="longer than any string"),
]


@pytest.mark.parametrize("entry", ROUND_TRIPS)
def test_an_image_is_moved_and_comes_back(entry: dict[str, Any], tmp_path: Path, store: Store) -> None:
    homes: list[Blobs] = [blobs_in_memory(), FileBlobs(tmp_path / "blobs"), store.blobs]
    for blobs in homes:
        before = copy.deepcopy(entry)
        line = written(entry, blobs)
        raw = encode_entry(line)
        assert entry == before
        assert len(raw) < 400
        assert b"blob:sha256:" in raw
        assert needs_restoring(raw)
        assert encode_entry(restored(line, blobs)) == encode_entry(entry)
        assert encode_entry(line) == raw
        assert written(line, blobs) is line


STAYS: Final[list[Any]] = [
    pytest.param({"content": image(CANONICAL)}, id="not in a list"),
    pytest.param({"images": [image(CANONICAL)]}, id="under another key"),
    pytest.param({"content": [{"type": "picture", "data": CANONICAL}]}, id="another type"),
    pytest.param({"content": [{"type": "image", "data": [CANONICAL]}]}, id="data that is no string"),
    pytest.param({"content": [{"type": "image", "url": CANONICAL}]}, id="no data"),
    pytest.param({"content": [CANONICAL, {"type": "text", "text": URL}]}, id="texts"),
    pytest.param({"url": URL, "image_url": "data:image/svg+xml,<svg/>"}, id="no base64 URL"),
    pytest.param({"image_url": "data:text/plain;base64,AAAA"}, id="URL of a text"),
    pytest.param({"content": [image(ONE), image("blob:sha256:" + "A" * 2000)]}, id="references"),
    pytest.param({"content": [image("data:image/png;base64," + CANONICAL)]}, id="a URL where base64 should be"),
    pytest.param({"content": [image("é" + CANONICAL)]}, id="no base64"),
    pytest.param({"content": [image(CANONICAL + "=" + CANONICAL)]}, id="padding in the middle"),
    pytest.param({"image_url": "data:image/png;base64,\ud800"}, id="URL with half a character"),
    pytest.param({"type": "image_generation_call", "result": CANONICAL}, id="omp's place"),
]


@pytest.mark.parametrize("entry", STAYS)
def test_what_is_no_image_or_would_be_lost_stays_in_the_line(entry: dict[str, Any]) -> None:
    blobs = blobs_in_memory()
    assert written(entry, blobs) is entry
    assert from_disk(entry, blobs, on_missing=lambda _: None) is entry


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_the_other_dialects_write_the_entry_itself(dialect: str) -> None:
    entry = {"content": [image(CANONICAL)], "a": "x" * 600_000, "partialJson": "{"}
    assert for_disk(entry, blobs_in_memory(), dialect=dialect) is entry
    assert not needs_control(encode_entry(entry), dialect=dialect)


def test_what_else_an_image_has_is_written_as_it_is() -> None:
    more = {"partialJson": "{", "note": "x" * 500_001}
    assert written({"content": [image(CANONICAL, **more)]}) == {"content": [image(ONE, **more)]}


OMP_PLACES: Final[list[Callable[[str], dict[str, Any]]]] = [
    lambda data: {"images": [image(data)]},
    lambda data: {"images": [{"mimeType": "IMAGE/png", "data": data}]},
    lambda data: {"a": {"type": "image_generation_call", "result": data}},
]


@pytest.mark.parametrize("place", OMP_PLACES, ids=["images", "images by media type", "generated"])
def test_images_in_omp_s_places_come_back_and_are_never_cut(place: Callable[[str], dict[str, Any]]) -> None:
    blobs = blobs_in_memory()
    blobs.put(BYTES)
    assert restored(place(ONE), blobs) == place(CANONICAL)
    large = place(b64(b"x" * 900_000))
    line = written(large, blobs)
    assert len(encode_entry(line)) < 200
    assert restored(line, blobs) == large


@pytest.mark.parametrize(
    ("data", "canonical"),
    [
        ("\r\n".join(CANONICAL[i : i + 76] for i in range(0, 1200, 76)), CANONICAL),
        (PADDED.rstrip("="), PADDED),
        (PADDED[:-1], PADDED),
        (PADDED + "\n", PADDED),
        ("-_-_" * 300, "+/+/" * 300),
    ],
    ids=["lines", "no padding", "half of it", "newline behind", "URL-safe"],
)
def test_base64_comes_back_in_its_canonical_form(data: str, canonical: str) -> None:
    blobs = blobs_in_memory()
    line = written({"content": [image(data)]}, blobs)
    assert len(encode_entry(line)) < 150
    assert restored(line, blobs) == {"content": [image(canonical)]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # printed by node 20: Buffer.from(text, "base64").toString("hex")
        ("", ""),
        ("A", ""),
        ("AB", "00"),
        ("ABC", "0010"),
        ("AB=", "00"),
        ("AAAAA", "000000"),
        ("A-_/+", "03efff"),
        ("__--", "ffffbe"),
        ("AA A\nA", "000000"),
        ("AA*A?A", "000000"),
        ("éAAAA", "000000"),
        ("AAAA\0AAAA", "000000000000"),
        ("QUJD\r\nREVG", "414243444546"),
        ("AAAA=BBBB", "000000"),
        ("QQ==QQ==", "41"),
        ("=AAAA", ""),
        ("====", ""),
        ("data:image/png;base64,AAAA", "75ab5a8a66a07bfa6781b6ac7bae000000"),
    ],
)
def test_base64_is_decoded_as_node_does(text: str, expected: str) -> None:
    assert decode_base64(text).hex() == expected


# -- reading back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"content": ONE, "text": ONE, "data": ONE, "summary": ONE},
        {"content": [ONE, {"type": "text", "text": ONE}, {"type": "picture", "data": ONE}]},
        {"content": [{"type": "image", "data": [ONE], "other": ONE, "mimeType": ONE}]},
        {"content": {"type": "image", "data": ONE}},
        {"other": [{"type": "image", "data": ONE}], "frames": [{"type": "image", "data": ONE}]},
        {"images": [{"mimeType": "text/plain", "data": ONE}], "result": ONE},
        {"arguments": {"image_urls": [ONE]}},
        {"content": [image(ONE + "0"), image(ONE[:-1]), image(ONE.upper()), image("blob:sha256:../" + sha(BYTES))]},
        {"content": [image(ONE + "\n")], "image_url": "blob:sha256:"},
    ],
    ids=["texts", "blocks", "in the image", "no list", "other keys", "no image", "near", "no digest", "no digest, 2"],
)
def test_text_that_looks_like_a_reference_stays_text(entry: dict[str, Any]) -> None:
    blobs = blobs_in_memory()
    blobs.put(BYTES)
    assert restored(entry, blobs) is entry


def test_a_missing_blob_leaves_its_reference_and_is_named(tmp_path: Path) -> None:
    blobs, missing = FileBlobs(tmp_path), list[str]()
    other = f"blob:sha256:{blobs.put(b'other')}"
    lost = [sha(b"1"), sha(b"2")]
    refs = [f"blob:sha256:{digest}" for digest in lost]
    entry = {"content": [image(refs[0]), image(other)], "image_url": refs[1]}
    loaded = from_disk(entry, blobs, on_missing=missing.append)
    assert loaded == {"content": [image(refs[0]), image(b64(b"other"))], "image_url": refs[1]}
    assert sorted(missing) == sorted(lost)


@pytest.mark.parametrize("content", [BYTES, b"\xff\xfe", b"https://x/y.png"], ids=["picture", "no UTF-8", "other URL"])
def test_a_url_s_blob_that_is_no_image_url_counts_as_missing(content: bytes) -> None:
    blobs, missing = blobs_in_memory(), list[str]()
    entry = {"image_url": f"blob:sha256:{blobs.put(content)}"}
    assert from_disk(entry, blobs, on_missing=missing.append) is entry
    assert missing == [sha(content)]


def test_only_the_changed_path_is_copied() -> None:
    blobs = blobs_in_memory()
    entry: dict[str, Any] = {
        "a": {"big": [1]},
        "message": {"usage": {}, "content": [{"type": "text"}, image(CANONICAL)]},
    }
    line = written(entry, blobs)
    for one in (line, restored(line, blobs)):
        assert one["a"] is entry["a"]
        assert one["message"]["usage"] is entry["message"]["usage"]
        assert one["message"]["content"][0] is entry["message"]["content"][0]
        assert one["message"] is not entry["message"]


# -- any value ----------------------------------------------------------------------------------------------------


def nested(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = {"content": value} if level % 2 else [value]
    return value


def test_no_depth_is_too_deep() -> None:
    blobs = blobs_in_memory()
    entry = nested([image(CANONICAL), {"partialJson": 1}, "x" * 500_001], 5_000)
    line = written(entry, blobs)
    assert encode_entry(line) == encode_entry(nested([image(ONE), {}, "x" * KEPT + NOTICE], 5_000))
    assert encode_entry(restored(line, blobs)) == encode_entry(
        nested([image(CANONICAL), {}, "x" * KEPT + NOTICE], 5_000)
    )


PLACES: Final = ["content", "type", "data", "image_url", "images", "result", "mimeType", "text", "0"]
KEYS: Final = [*PLACES, "lineCount", "partialJson", "jsonlEvents", "thinkingSignature"]
LIMIT: Final = 2_000
SMALL: Final = [None, True, 0, 1.5, UNSET, "", "image", "image_generation_call", "image/png", "a\nb", "\ud800"]
SIGNS: Final = ['"partialJson"', '"jsonlEvents":', '"type":"image"', '"image_url":"data:image/']
IMAGES: Final = [ONE, CANONICAL, "A" * 1024, "A" * 1023, "no base64 " * 120, b64(b"x" * LIMIT), b64(b"x" * LIMIT) + "?"]
URLS: Final = [URL, "data:image/x;base64,", "data:image/;base64," + "\udfff" * LIMIT]
AT_THE_LIMIT: Final = [
    "x" * LIMIT,
    "x" * (LIMIT + 1),
    EMOJI * (LIMIT // 2),
    EMOJI * (LIMIT // 2 + 1),
    "é" * (LIMIT + 1),
]
LEAVES: Final = [*SMALL, *SIGNS, *IMAGES, *URLS, *AT_THE_LIMIT]


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(LEAVES)
    if kind < 0.3:
        return {"type": "image", "data": rng.choice(LEAVES), rng.choice(KEYS): rng.choice(LEAVES)}
    if kind < 0.5:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {key: random_value(rng, depth - 1) for key in rng.sample(KEYS, rng.randint(0, 4))}


def all_ids(value: Any) -> list[int]:
    """The identity of every container and of all that it holds: another list when any of them was changed."""
    found: list[int] = []
    waiting = [value]
    for one in waiting:  # which grows meanwhile
        found.append(id(one))
        if type(one) is dict:
            waiting += [item for pair in one.items() for item in pair]
        elif type(one) is list:
            waiting += one
    return found


def test_needs_control_misses_nothing_and_memory_is_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_control, "LONGEST_STRING", LIMIT)  # the rule at a size that many values can have
    rng = random.Random(11)
    changed = passed = 0
    for _ in range(1_200):
        value = random_value(rng, 4)
        if value is UNSET:
            continue
        before, raw, blobs = all_ids(value), encode_entry(value), blobs_in_memory()
        line = written(value, blobs)
        assert line is value or needs_control(raw), raw[:500]
        assert (line is value) == (encode_entry(line) == raw)
        loaded = from_disk(line, blobs, on_missing=lambda _: None)
        assert loaded is line or needs_restoring(encode_entry(line))
        assert all_ids(value) == before
        changed += line is not value
        passed += not needs_control(raw)
    assert changed > 300
    assert passed > 300


# -- where the bytes go -------------------------------------------------------------------------------------------


def test_blob_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "agent/blobs"
    blobs = FileBlobs(folder)
    assert blobs.get(sha(b"one")) is None
    assert not folder.exists()
    before = os.umask(0)
    try:
        assert blobs.put(b"one") == sha(b"one")
    finally:
        os.umask(before)
    assert blobs.get(sha(b"one")) == b"one"
    assert [(p.name, stat.S_IMODE(p.stat().st_mode)) for p in folder.iterdir()] == [(sha(b"one"), 0o600)]
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700, 0o700]


def test_a_blob_file_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    path = tmp_path / blobs.put(b"one")
    status = path.stat()
    blobs.put(b"one")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


def test_a_damaged_blob_file_is_no_blob_until_its_bytes_are_put_again(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    path = tmp_path / blobs.put(b"one")
    path.write_bytes(b"on")
    assert blobs.get(path.name) is None
    blobs.put(b"one")
    assert blobs.get(path.name) == b"one"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_only_64_lower_case_hex_digits_name_a_blob_file(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    digest = blobs.put(b"secret")
    (tmp_path / digest).write_bytes(b"secret")
    names = [
        f"../{digest}",
        f"../blobs/{digest}",
        f"{tmp_path}/{digest}",
        f"{digest}\n",
        digest.upper(),
        digest[1:],
        "",
    ]
    assert [blobs.get(name) for name in names] == [None] * len(names)


def test_what_is_no_regular_file_is_no_blob(tmp_path: Path) -> None:
    fifo, folder = sha(b"fifo"), sha(b"folder")
    os.mkfifo(tmp_path / fifo)
    (tmp_path / folder).mkdir()
    blobs = FileBlobs(tmp_path)
    assert blobs.get(fifo) is None
    assert blobs.get(folder) is None
    with pytest.raises(OSError, match="directory"):
        blobs.put(b"folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([fifo, folder])


def test_a_blob_that_cannot_be_written_leaves_nothing_and_no_reference(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file where the folder should be")
    entry = {"content": [image(CANONICAL)]}
    with pytest.raises(OSError, match=r"exists|directory"):
        written(entry, FileBlobs(tmp_path / "blobs"))
    assert entry == {"content": [image(CANONICAL)]}
