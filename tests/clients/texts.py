"""JSON texts of messages and other values, as clients write them and as they never should."""

from __future__ import annotations

import json
import random

START_MS = 1_760_000_000_000
TEXTS = [
    *("hello", "", " ", "two words", "a\nb\r\n\tc", "漢字 😀 é", "\u2028\u2029\ufeff", "\x00\x1f\x7f", '"\\/'),
    *("0", "null", "__proto__", "\ud800 alone", "x" * 3000, "</summary>"),
]
NAMES = ["a name", "  padded\t", "", "   ", "\u00a0\ufeffodd spaces\u2003", "\u0085kept\u0085", "two\nlines", "漢字"]
MODELS = [("anthropic", "claude-sonnet-4-5"), ("openrouter", "meta/llama-4:free"), ("p", "m"), ("o", "x/y"), ("p", "")]
LEVELS = ["off", "minimal", "high", "xhigh", "", None]
ODD = """
    null true false 0 -0 1.0 1e21 1e-7 0.1 1e400 9007199254740993 18446744073709551616 "" "\\ud83d"
    [] {} [null] [[[]]] {"":{}} {"b":1,"10":2,"a":3,"2":4} {"k":1,"k":2} {"__proto__":{"x":1}} {"constructor":null}
    {"id":"00000001","parentId":null,"type":"label"}
""".split()  # noqa: SIM905  # read more easily than a list of quoted texts
BLOCKS = [
    '{"type":"text","text":"hi"}',
    '{"type":"text","text":""}',
    '{"type":"thinking","thinking":"hm","thinkingSignature":"c2ln"}',
    '{"type":"toolCall","id":"call_1","name":"bash","arguments":{"command":"ls","timeout":1.50}}',
    '{"type":"image","data":"aGk=","mimeType":"image/png"}',
    '{"type":"image","mimeType":"image/png","data":"' + "QUJD" * 400 + '"}',
    '{"type":"unheard of","text":7}',
    '"text alone"',
    "null",
]
USAGES = [
    '{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0.1,"output":0.02,"total":0.12}}',
    '{"input":1e3,"output":0.5}',
    '{"input":"many","cost":null}',
    *ODD[:8],
]
ROLES = ["bashExecution", "custom", "branchSummary", "compactionSummary", "hookMessage", "system", "User", ""]


class Texts:
    """Makes them from a source of chance. `talkative` is how often a message is an assistant's."""

    def __init__(self, rng: random.Random, *, talkative: float) -> None:
        self.rng, self.talkative = rng, talkative

    def odd(self) -> str:
        return self.rng.choice(ODD)

    def message(self) -> str:
        chance = self.rng.random()
        if chance < self.talkative:
            return self.assistant()
        if chance < self.talkative + 0.1:
            return self.tool_result()
        if chance < 0.9:
            return object_text(role='"user"', content=self.content(), timestamp=self.time())
        return self.odd_message()

    def assistant(self) -> str:
        rng = self.rng
        provider, model = rng.choice(MODELS)
        members = {
            "content": "[" + ",".join(self.rng.choice(BLOCKS) for _ in range(rng.randrange(4))) + "]",
            "api": '"some-api"',
            "provider": json.dumps(provider),
            "model": json.dumps(model),
            "usage": rng.choice(USAGES),
            "stopReason": json.dumps(rng.choice(["stop", "toolUse", "error", "aborted", None, 7])),
            "timestamp": rng.choice([self.time(), "0", "null", '"soon"']),
        }
        for name in rng.sample(sorted(members), rng.choice([0, 0, 0, 1, 4])):
            del members[name]
        return object_text(role='"assistant"', **members)

    def tool_result(self) -> str:
        details = f'{{"usage":{self.rng.choice(USAGES)}}}'
        name = self.rng.choice(['"bash"', '"task"', "null"])
        more = {"content": self.content(), "details": details, "isError": "false"}
        return object_text(role='"toolResult"', toolCallId='"call_1"', toolName=name, **more)

    def odd_message(self) -> str:
        role = self.rng.choice([*(json.dumps(role) for role in ROLES), *ODD[:6]])
        more = {"content": self.odd(), "customType": '"x"', "output": self.odd()}
        more[self.rng.choice("a0~")] = self.odd()
        if self.rng.random() < 0.2:
            return object_text(**more)
        return object_text(**more, role=role)

    def content(self) -> str:
        if self.rng.random() < 0.5:
            return json.dumps(self.rng.choice(TEXTS))
        return "[" + ",".join(self.rng.choice(BLOCKS) for _ in range(self.rng.randrange(4))) + "]"

    def time(self) -> str:
        return str(START_MS + self.rng.randrange(10**9))


def object_text(**members: str) -> str:
    """The JSON of an object whose values are these texts."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"
