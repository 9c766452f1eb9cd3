"""What the live session's runtime hands over and expects: events, results, and protocols of the host's own objects.

Events and results have pi's keys; what is undefined there is None here. Methods marked *sync or async* may be either:
what they return is awaited when it can be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NotRequired, Protocol, TypedDict

from sessiondb.manager import SessionManager

ForkPosition = Literal["before", "at"]


class SessionBeforeSwitchEvent(TypedDict):
    """Asks whether the live session may go for a new one, or for the target: a path or reference as it was given."""

    type: Literal["session_before_switch"]
    reason: Literal["new", "resume"]
    targetSessionFile: str | None


class SessionBeforeForkEvent(TypedDict):
    """Asks whether the live session may be forked before or at an entry."""

    type: Literal["session_before_fork"]
    entryId: str
    position: ForkPosition


class SessionShutdownEvent(TypedDict):
    """The live session ends; `targetSessionFile` is the path or id of the next, None in memory, left out at "quit"."""

    type: Literal["session_shutdown"]
    reason: Literal["new", "resume", "fork", "quit"]
    targetSessionFile: NotRequired[str | None]


class SessionStartEvent(TypedDict):
    """Handed to the factory: why it makes a session, and which one was live before."""

    type: Literal["session_start"]
    reason: Literal["startup", "reload", "new", "resume", "fork"]
    previousSessionFile: NotRequired[str | None]


SessionEvent = SessionBeforeSwitchEvent | SessionBeforeForkEvent | SessionShutdownEvent


class ReplacementResult(TypedDict):
    """What a replacement came to; `selectedText` is the text of the message that was forked before."""

    cancelled: bool
    selectedText: NotRequired[str]


class HandlerErrorDiagnostic(TypedDict):
    """A handler raised: on which event (or in which callback), and what."""

    type: Literal["handler_error"]
    event: str
    error: str


class ExtensionRunner(Protocol):
    """Gives events to extensions."""

    def has_handlers(self, event_type: str, /) -> bool:
        """Whether anybody listens to the event; else it is not emitted."""

    def emit(self, event: Any, /) -> Any:
        """Give a SessionEvent to its handlers, sync or async. `{"cancel": True}` stops what a before event asks of."""


class LiveSession(Protocol):
    """The host's session around a SessionManager."""

    @property
    def session_manager(self) -> SessionManager: ...

    @property
    def extension_runner(self) -> ExtensionRunner: ...

    @property
    def session_file(self) -> str | None:
        """The manager's `get_session_file()`."""

    def dispose(self) -> Any:
        """Release all that the session holds, sync or async. Called again when a cancellation cut it short."""


class ReloadingSession(LiveSession, Protocol):
    """What a session can do, too, whose host gives `setup` to `new_session`."""

    def set_messages(self, messages: Sequence[Any], /) -> Any:
        """Take these as the messages of the context, sync or async."""


class ContextualSession(LiveSession, Protocol):
    """What a session can do, too, whose host gives `with_session`."""

    def replaced_context(self) -> Any:
        """What `with_session` is called with, sync or async."""


class Services(Protocol):
    """What the factory resolved once for a session."""

    @property
    def cwd(self) -> str: ...

    @property
    def agent_dir(self) -> str: ...


class RuntimeResult(Protocol):
    """What the factory returns."""

    @property
    def session(self) -> LiveSession: ...

    @property
    def services(self) -> Services: ...

    @property
    def diagnostics(self) -> Sequence[Any] | None: ...

    @property
    def model_fallback_message(self) -> str | None: ...


class CreateRuntime(Protocol):
    """The factory, sync or async: makes a session and its services around a manager. Used for every replacement."""

    def __call__(
        self, *, cwd: str, agent_dir: str, session_manager: SessionManager,
        session_start_event: SessionStartEvent | None,
    ) -> RuntimeResult | Awaitable[RuntimeResult]: ...  # fmt: skip


Setup = Callable[[SessionManager], Any]
RebindSession = Callable[[Any], Any]
WithSession = Callable[[Any], Any]
BeforeSessionInvalidate = Callable[[], Any]
