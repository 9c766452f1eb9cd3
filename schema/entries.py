"""What the lines of a session file hold, as types: header, title slot, entries, messages; and what is made of them.

All are plain dicts with the clients' own keys. A key is required when every readable version 3 line has it; what the
clients write today, but old and foreign files lack, is NotRequired. A comment names the dialects that have a key, when
not all do.

Nothing here is closed: clients add keys, types, roles and blocks. What is not known is carried along as it is, typed by
the keys that anything of its sort has: `UnknownEntry`, `UnknownMessage`, `UnknownBlock`. These are no part of the
unions `Entry`, `Message` and `Block`, so that comparing `type` or `role` narrows a union to the type of that name.

`session-v3.schema.json` says the same of one line, under the same names; `test_entry_schema` holds the two together.
"""

# No `from __future__ import annotations`: it hides NotRequired from `__required_keys__`. So parts stand before wholes.

from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "AssistantMessage", "BashExecutionMessage", "Block", "BranchSummaryEntry", "BranchSummaryMessage",
    "CompactionEntry", "CompactionSummaryMessage", "Content", "ContextChangeEntry", "ContextEditEntry", "Cost",
    "CredentialPinEntry", "CustomEntry", "CustomMessage", "CustomMessageEntry", "Entry", "EntryBase",
    "FileMentionMessage", "ImageBlock", "InstructionMessage", "LabelEntry", "Line", "McpToolSelectionEntry",
    "MentionedFile", "Message", "MessageEntry", "ModeChangeEntry", "ModelChangeEntry", "ModelUsageEntry",
    "OmpContext", "PiContext", "PiModel", "PiModelChangeEntry", "PythonExecutionMessage", "RedactedThinkingBlock",
    "Replacement", "ResetBoundaryEntry", "ServiceTierChangeEntry", "SessionHeader", "SessionInfoEntry",
    "SessionInitEntry", "TextBlock", "ThinkingBlock", "ThinkingLevelChangeEntry", "TitleChangeEntry", "TitleSlot",
    "ToolCallBlock", "ToolResultMessage", "TreeNode", "TtsrInjectionEntry", "UnknownBlock", "UnknownEntry",
    "UnknownMessage", "Usage", "UsageEntry", "UserMessage", "XcshContext",
]  # fmt: skip


# Blocks


class TextBlock(TypedDict):
    """Text."""

    type: Literal["text"]
    text: str
    textSignature: NotRequired[str]  # the provider's


class ThinkingBlock(TypedDict):
    """The model's reasoning, as far as it is shown."""

    type: Literal["thinking"]
    thinking: str
    thinkingSignature: NotRequired[str]  # the provider's; emptied by xcsh when it is too long
    redacted: NotRequired[bool]  # pi: the text was withheld, the signature holds it encrypted


class RedactedThinkingBlock(TypedDict):
    """Reasoning that the provider encrypted (xcsh, omp)."""

    type: Literal["redactedThinking"]
    data: str


class ImageBlock(TypedDict):
    """An image."""

    type: Literal["image"]
    data: str  # base64, or blob:sha256: and 64 hex digits
    mimeType: str


class ToolCallBlock(TypedDict):
    """A tool that the model asks for."""

    type: Literal["toolCall"]
    id: str  # the toolCallId of its result
    name: str
    arguments: dict[str, Any]
    thoughtSignature: NotRequired[str]  # Google's
    partialJson: NotRequired[str]  # left over from streaming; xcsh and omp do not store it
    intent: NotRequired[str]  # omp


class UnknownBlock(TypedDict):
    """A block of a type that is not known here."""

    type: str


Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ImageBlock | ToolCallBlock
Content = str | list[Block | UnknownBlock]


# Messages. A message's timestamp is in milliseconds since 1970, UTC; null when a client could not read the time.


class Cost(TypedDict, total=False):
    """What an answer cost, in US dollars."""

    input: float
    output: float
    cacheRead: float
    cacheWrite: float
    total: float


class Usage(TypedDict, total=False):
    """Tokens of an answer, as its client counted them."""

    input: int
    output: int
    cacheRead: int
    cacheWrite: int
    totalTokens: int
    premiumRequests: float  # xcsh, omp
    cost: Cost


class UserMessage(TypedDict):
    """What was asked."""

    role: Literal["user"]
    content: Content
    timestamp: NotRequired[int | None]
    attribution: NotRequired[str]  # xcsh, omp: user or agent, who caused it
    synthetic: NotRequired[bool]  # xcsh, omp: put in by the client
    providerPayload: NotRequired[dict[str, Any]]  # xcsh, omp: history in the provider's own form


class InstructionMessage(TypedDict):
    """What the client told the model: developer (xcsh, omp) or system (pi 1.6)."""

    role: Literal["developer", "system"]
    content: Content
    timestamp: NotRequired[int | None]
    attribution: NotRequired[str]
    synthetic: NotRequired[bool]
    providerPayload: NotRequired[dict[str, Any]]


class AssistantMessage(TypedDict):
    """An answer of the model."""

    role: Literal["assistant"]
    content: list[Block | UnknownBlock]
    api: NotRequired[str]
    provider: NotRequired[str]
    model: NotRequired[str]
    usage: NotRequired[Usage]
    stopReason: NotRequired[str]  # stop, length, toolUse, error, aborted
    timestamp: NotRequired[int | None]
    errorMessage: NotRequired[str]
    responseId: NotRequired[str]
    responseModel: NotRequired[str]  # pi: what the provider says it used
    duration: NotRequired[float]  # xcsh, omp: milliseconds
    ttft: NotRequired[float]  # xcsh, omp: milliseconds to the first token
    providerPayload: NotRequired[dict[str, Any]]  # xcsh, omp


class ToolResultMessage(TypedDict):
    """What a tool gave back."""

    role: Literal["toolResult"]
    toolCallId: str  # the id of the toolCall block
    content: Content
    toolName: NotRequired[str]
    isError: NotRequired[bool]
    details: NotRequired[Any]  # the tool's own; not for the model
    timestamp: NotRequired[int | None]
    attribution: NotRequired[str]  # xcsh, omp
    prunedAt: NotRequired[float]  # xcsh, omp: when the output was cut to save room, in milliseconds


class BashExecutionMessage(TypedDict):
    """A command that the user ran."""

    role: Literal["bashExecution"]
    command: str
    output: str
    cancelled: bool
    truncated: bool
    timestamp: int | None
    exitCode: NotRequired[int | None]  # absent when it was killed
    fullOutputPath: NotRequired[str]  # pi
    excludeFromContext: NotRequired[bool]
    meta: NotRequired[Any]  # xcsh, omp: how the output was cut


class PythonExecutionMessage(TypedDict):
    """Python that the user ran (xcsh, omp)."""

    role: Literal["pythonExecution"]
    code: str
    output: str
    cancelled: bool
    truncated: bool
    timestamp: int | None
    exitCode: NotRequired[int | None]
    excludeFromContext: NotRequired[bool]
    meta: NotRequired[Any]


class CustomMessage(TypedDict):
    """An extension's message to the model; hookMessage is its name before version 3."""

    role: Literal["custom", "hookMessage"]
    customType: str
    content: Content
    display: bool
    timestamp: int | None
    details: NotRequired[Any]
    attribution: NotRequired[str]  # xcsh, omp


class BranchSummaryMessage(TypedDict):
    """What a branch that was left came to."""

    role: Literal["branchSummary"]
    summary: str
    fromId: str
    timestamp: int | None


class CompactionSummaryMessage(TypedDict):
    """What stands in a context for the messages before it."""

    role: Literal["compactionSummary"]
    summary: str
    tokensBefore: int
    timestamp: int | None
    shortSummary: NotRequired[str]  # xcsh, omp
    tokensAfter: NotRequired[int]  # omp
    method: NotRequired[str]  # omp
    providerPayload: NotRequired[dict[str, Any]]  # xcsh, omp
    warning: NotRequired[str]  # omp


class MentionedFile(TypedDict):
    """A file that a prompt named."""

    path: str
    content: str
    lineCount: NotRequired[int]
    byteSize: NotRequired[int]
    skippedReason: NotRequired[str]  # why the content was left out
    image: NotRequired[ImageBlock]


class FileMentionMessage(TypedDict):
    """Files that a prompt named, read for the model (xcsh, omp)."""

    role: Literal["fileMention"]
    files: list[MentionedFile]
    timestamp: int | None


class UnknownMessage(TypedDict):
    """A message of a role that is not known here; clients keep it from the model."""

    role: str


Message = (
    UserMessage
    | InstructionMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | PythonExecutionMessage
    | CustomMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
    | FileMentionMessage
)


# Lines


class SessionHeader(TypedDict):
    """The first line of a session, or the second behind a title slot."""

    type: Literal["session"]
    version: int  # 3; a later one is read as 3, an earlier one is migrated
    id: str
    timestamp: str
    cwd: str
    parentSession: NotRequired[str]  # path or id, as its client wrote it: not a key
    title: NotRequired[str]  # xcsh, omp
    titleSource: NotRequired[Literal["auto", "user"]]  # xcsh, omp
    additionalDirectories: NotRequired[list[str]]  # omp
    previousSessionFiles: NotRequired[list[str]]  # omp: where the file was before it moved
    providerPromptCacheKey: NotRequired[str]  # omp


class TitleSlot(TypedDict):
    """The current title, in a line of 256 bytes before the header (omp)."""

    type: Literal["title"]
    v: Literal[1]
    title: str  # empty: the session has none
    updatedAt: str
    pad: str
    source: NotRequired[Literal["auto", "user"]]


class EntryBase(TypedDict):
    """The keys that every entry has beside its type."""

    id: str  # opaque, and not always unique: the last entry of that id counts
    parentId: str | None  # null: a root
    timestamp: str  # ISO 8601, UTC


class MessageEntry(EntryBase):
    """A message."""

    type: Literal["message"]
    message: Message | UnknownMessage


class ThinkingLevelChangeEntry(EntryBase):
    """From here on the model thinks as much as this."""

    type: Literal["thinking_level_change"]
    thinkingLevel: str | None  # null: off
    configured: NotRequired[str | None]  # omp: what the user chose, such as auto


class ModelChangeEntry(EntryBase):
    """From here on this model has the role (xcsh, omp)."""

    type: Literal["model_change"]
    model: str  # provider/modelId
    role: NotRequired[str]  # absent: default
    resolvedModelIsFallback: NotRequired[bool]  # omp


class PiModelChangeEntry(EntryBase):
    """From here on this model answers (pi)."""

    type: Literal["model_change"]
    provider: str
    modelId: str


class CompactionEntry(EntryBase):
    """The path up to here was summed up."""

    type: Literal["compaction"]
    summary: str
    tokensBefore: int
    firstKeptEntryId: NotRequired[str | None]  # null, or absent after a migration that found no target: keeps nothing
    details: NotRequired[Any]
    fromHook: NotRequired[bool]  # pi
    usage: NotRequired[Usage]  # pi 1.6
    systemMessage: NotRequired[InstructionMessage]  # pi 1.6
    shortSummary: NotRequired[str]  # xcsh, omp
    fromExtension: NotRequired[bool]  # xcsh, omp
    preserveData: NotRequired[dict[str, Any] | None]  # xcsh, omp: what extensions and providers keep across it
    tokensAfter: NotRequired[int]  # omp
    method: NotRequired[str]  # omp
    providerReplayThroughEntryId: NotRequired[str]  # omp
    warning: NotRequired[str]  # omp


class BranchSummaryEntry(EntryBase):
    """What a branch that was left came to."""

    type: Literal["branch_summary"]
    fromId: str  # the entry branched from, in pi 1.6 the leaf that was left; "root" when there is none
    summary: str
    details: NotRequired[Any]
    fromHook: NotRequired[bool]  # pi
    usage: NotRequired[Usage]  # pi 1.6
    fromExtension: NotRequired[bool]  # xcsh, omp


class CustomEntry(EntryBase):
    """An extension's state; not for the model."""

    type: Literal["custom"]
    customType: str
    data: NotRequired[Any]


class CustomMessageEntry(EntryBase):
    """An extension's message to the model."""

    type: Literal["custom_message"]
    customType: str
    content: Content
    display: bool  # whether people see it
    details: NotRequired[Any]
    attribution: NotRequired[str]  # xcsh, omp: user or agent


class LabelEntry(EntryBase):
    """A name for an entry; the last one in the file counts."""

    type: Literal["label"]
    targetId: str
    label: NotRequired[str | None]  # absent, null or empty: takes the label off


class SessionInfoEntry(EntryBase):
    """The session's name (pi); the last one in the file counts."""

    type: Literal["session_info"]
    name: str


class TtsrInjectionEntry(EntryBase):
    """Rules that were shown to the model (xcsh, omp)."""

    type: Literal["ttsr_injection"]
    injectedRules: list[str]


class SessionInitEntry(EntryBase):
    """What a subagent started with (xcsh, omp; omp adds keys)."""

    type: Literal["session_init"]
    systemPrompt: str | list[str]  # omp: also its parts
    task: str
    tools: list[str]
    outputSchema: NotRequired[Any]


class ModeChangeEntry(EntryBase):
    """From here on this mode holds (xcsh, omp)."""

    type: Literal["mode_change"]
    mode: str  # "none": no special one
    data: NotRequired[dict[str, Any] | None]


class ContextChangeEntry(EntryBase):
    """From here on this context of the service is the active one (xcsh)."""

    type: Literal["context_change"]
    contextName: str
    tenant: str
    namespace: str


class ServiceTierChangeEntry(EntryBase):
    """From here on requests ask for this tier (xcsh, omp)."""

    type: Literal["service_tier_change"]
    serviceTier: str | dict[str, str] | None  # omp: by family of providers


class McpToolSelectionEntry(EntryBase):
    """The MCP tools that are chosen from here on (xcsh)."""

    type: Literal["mcp_tool_selection"]
    selectedToolNames: list[str]


class UsageEntry(EntryBase):
    """What a request beside the conversation used (pi 1.6)."""

    type: Literal["usage"]
    kind: str
    provider: str
    model: str
    usage: Usage
    note: NotRequired[str]


class Replacement(TypedDict):
    """The content that stands in a context for an entry's own."""

    content: Content


class ContextEditEntry(EntryBase):
    """An earlier entry's part in the context is changed (pi 1.6)."""

    type: Literal["context_edit"]
    targetId: str
    replacement: Replacement | None  # null: left out


class CredentialPinEntry(EntryBase):
    """The account that serves this session (omp)."""

    type: Literal["credential_pin"]
    provider: str
    hash: str


class ModelUsageEntry(EntryBase):
    """What a request beside the conversation used (omp); does not move the leaf."""

    type: Literal["model_usage"]
    purpose: str
    api: str
    provider: str
    model: str
    usage: Usage
    stopReason: str
    role: NotRequired[str]
    errorMessage: NotRequired[str]


class ResetBoundaryEntry(EntryBase):
    """The context starts anew behind this entry (omp)."""

    type: Literal["reset_boundary"]


class TitleChangeEntry(EntryBase):
    """The session's title was changed (omp); the slot has the current one."""

    type: Literal["title_change"]
    title: str
    source: Literal["auto", "user"]
    previousTitle: NotRequired[str]
    trigger: NotRequired[str]


class UnknownEntry(EntryBase):
    """An entry of a type that is not known here: kept, part of the tree, no part of a context."""

    type: str


Entry = (
    MessageEntry
    | ThinkingLevelChangeEntry
    | ModelChangeEntry
    | PiModelChangeEntry
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
    | TtsrInjectionEntry
    | SessionInitEntry
    | ModeChangeEntry
    | ContextChangeEntry
    | ServiceTierChangeEntry
    | McpToolSelectionEntry
    | UsageEntry
    | ContextEditEntry
    | CredentialPinEntry
    | ModelUsageEntry
    | ResetBoundaryEntry
    | TitleChangeEntry
)
Line = SessionHeader | TitleSlot | Entry | UnknownEntry


# What is made of entries


class TreeNode(TypedDict):
    """An entry with those that follow it."""

    entry: Entry | UnknownEntry
    children: list["TreeNode"]
    label: NotRequired[str]
    labelTimestamp: NotRequired[str]  # pi: of the label entry


class PiModel(TypedDict, total=False):
    """A model in a pi context; a key is absent when the assistant message that set it lacks it."""

    provider: str
    modelId: str


class PiContext(TypedDict):
    """What goes to the model, and with which settings (pi)."""

    messages: list[Message | UnknownMessage]
    thinkingLevel: str | None
    model: PiModel | None


class XcshContext(TypedDict):
    """What goes to the model, and with which settings (xcsh)."""

    messages: list[Message | UnknownMessage]
    thinkingLevel: str
    serviceTier: NotRequired[str]
    models: dict[str, str]  # role to provider/modelId
    activeContextName: NotRequired[str]
    activeContextTenant: NotRequired[str]
    injectedTtsrRules: list[str]
    selectedMCPToolNames: list[str]
    hasPersistedMCPToolSelection: bool
    mode: str
    modeData: NotRequired[dict[str, Any] | None]


class OmpContext(TypedDict):
    """What goes to the model, and with which settings (omp)."""

    messages: list[Message | UnknownMessage]
    thinkingLevel: str
    configuredThinkingLevel: NotRequired[str]
    serviceTier: NotRequired[dict[str, str]]  # by family of providers
    models: dict[str, str]  # role to provider/modelId
    injectedTtsrRules: list[str]
    mode: str
    modeData: NotRequired[dict[str, Any] | None]
