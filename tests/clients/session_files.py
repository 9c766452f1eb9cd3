"""Session files as another client or an older one could have left them; pi reads each of them."""

from __future__ import annotations

import base64
import json
import random
import re

from tests.clients.texts import LEVELS, MODELS, NAMES, TEXTS, Texts, object_text

TIME = "2025-10-09T08:53:20.000Z"
NO_ENTRY = ["", " ", "not JSON", '{"type":"message","id":', '{"a":1}}', "\u00a0"]
"""Lines that are no entry in any client, and none in what is recovered from them."""
ODD_TIMES = ["", "soon", None, 0, "2025-10-09", "2025-10-09T08:54:30.5Z", "2025-10-09T10:54:01+02:00"]


def session_file(seed: int, *, version: int, cwd: str) -> tuple[str, bytes]:
    """Name and bytes of a session; a third have no assistant's message. Ids of versions 2 and 3 are numbers."""
    rng = random.Random(seed)
    texts = Texts(rng, talkative=rng.choice([0.0, 0.4, 0.8]))
    session_id = f"0199c0de-0000-7000-8000-{seed:012x}"
    header: dict[str, object] = {"type": "session", "id": session_id, "timestamp": TIME, "cwd": cwd}
    if version > 1:
        header["version"] = version
    if rng.random() < 0.2:
        header |= {"parentSession": "some session", "of a later version": {"1": [], "0": None}}
    lines = [json.dumps(header, separators=(",", ":"))]
    for number in range(1, rng.randrange(2, 14)):
        lines.append(entry_text(texts, number, version))
        if version == 3 and rng.random() < 0.05:
            lines.append(rng.choice(NO_ENTRY))
    return f"{re.sub('[:.]', '-', TIME)}_{session_id}.jsonl", "".join(line + "\n" for line in lines).encode()


def encoded(files: dict[str, bytes]) -> dict[str, str]:
    """Files as a job carries them."""
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def entry_text(texts: Texts, number: int, version: int) -> str:
    """The JSON text of the `number`-th entry."""
    rng = texts.rng
    time = f"2025-10-09T08:54:{number:02d}.000Z"
    base = {"timestamp": json.dumps(rng.choice(ODD_TIMES) if version == 3 and rng.random() < 0.1 else time)}
    if version > 1:
        own = one_id(rng, number)
        base = {"id": f'"{own:08x}"', "parentId": json.dumps(one_parent(rng, own))} | base
    kind = rng.random()
    if kind < 0.15:
        return object_text(
            type='"compaction"', **base, summary='"S"', **first_kept(rng, number, version), tokensBefore="9"
        )
    if kind < 0.3:
        return object_text(type='"message"', **base, message=hook_message(texts))
    if kind < 0.6 and version == 3:
        return other_entry(texts, base, number)
    return object_text(type='"message"', **base, message=texts.message())


def one_id(rng: random.Random, number: int) -> int:
    """Mostly its own, now and then one that is taken."""
    return rng.randrange(1, number) if number > 2 and rng.random() < 0.03 else number


def one_parent(rng: random.Random, number: int) -> str | None:
    """An entry of a lower number, so that no parents lead back: pi would walk them for ever. Some are missing."""
    if number == 1 or rng.random() < 0.05:
        return rng.choice([None, "0000dead"])
    return f"{rng.choice([number - 1, rng.randrange(1, number)]):08x}"


def first_kept(rng: random.Random, number: int, version: int) -> dict[str, str]:
    if version == 1:
        return {"firstKeptEntryIndex": rng.choice([str(rng.randrange(number + 3)), '"1"', "1.5", "-1"])}
    return {"firstKeptEntryId": json.dumps(f"{rng.randrange(number + 1):08x}")}


def hook_message(texts: Texts) -> str:
    return object_text(role='"hookMessage"', customType='"h"', content=texts.content(), display="true")


def other_entry(texts: Texts, base: dict[str, str], number: int) -> str:
    """One of version 3's other types, or of none that anybody knows."""
    rng = texts.rng
    provider, model = rng.choice(MODELS)
    target = json.dumps(f"{rng.randrange(number + 2):08x}")
    text = json.dumps(rng.choice(TEXTS))
    kinds = {
        "label": {"targetId": target, "label": rng.choice(['"mark"', text, '""', texts.odd()])},
        "session_info": {"name": rng.choice([json.dumps(rng.choice(NAMES)), "null"])},
        "thinking_level_change": {"thinkingLevel": rng.choice([json.dumps(rng.choice(LEVELS)), texts.odd()])},
        "model_change": {"provider": json.dumps(provider), "modelId": json.dumps(model)},
        "branch_summary": {"fromId": target, "summary": rng.choice([text, texts.odd()])},
        "custom": {"customType": text, "data": texts.odd()},
        "custom_message": {"customType": text, "content": texts.odd(), "display": texts.odd(), "details": texts.odd()},
        "of a later version": {"summary": text, "label": text, "message": text},
    }
    kind = rng.choice(sorted(kinds))
    fields = kinds[kind]
    if rng.random() < 0.1:
        fields.popitem()
    return object_text(type=json.dumps(kind), **base, **fields)
