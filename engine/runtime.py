"""The container of the live session: it goes, and another takes its place, in an order that leaves nothing dangling.

The class of this name in pi 0.73.1, for hosts in Python and over any home of a SessionManager. One replacement is

    before event -> the next session is opened, branched or copied -> shutdown event -> before_session_invalidate
    -> dispose -> the old manager is closed -> factory -> the new session is live -> [setup] -> rebind -> with_session

Up to the shutdown event a failure or a cancellation takes back what was made, and the live session never noticed.
From there until the new session is live it leaves no session live, and says so at every access; `recover` mends that.
engine/DESIGN.md has the rows in which this differs from pi.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, cast

from sessiondb.errors import (
    EntryNotFoundError,
    ForkEntryError,
    MissingSessionCwdError,
    ReplacementInProgressError,
    RuntimeDisposedError,
    SessionDBError,
    SessionForkError,
    SessionReplacementError,
)
from sessiondb.files import absolute
from sessiondb.jsonl import UNSET
from sessiondb.manager import SessionManager
from sessiondb.runtime_types import (
    BeforeSessionInvalidate,
    ContextualSession,
    CreateRuntime,
    ForkPosition,
    HandlerErrorDiagnostic,
    RebindSession,
    ReloadingSession,
    ReplacementResult,
    RuntimeResult,
    SessionBeforeSwitchEvent,
    SessionEvent,
    SessionShutdownEvent,
    SessionStartEvent,
    Setup,
    WithSession,
)
from sessiondb.storage import AnyPath
from sessiondb.tree import role_of

log = logging.getLogger("sessiondb")

T = TypeVar("T")

_TURNS: ContextVar[tuple[_Turn, ...]] = ContextVar("replacements that the running code is part of", default=())


async def create_agent_session_runtime(
    create_runtime: CreateRuntime, *, cwd: AnyPath, agent_dir: AnyPath, session_manager: SessionManager,
    session_start_event: SessionStartEvent | None = None,
) -> AgentSessionRuntime:  # fmt: skip
    """Make the first session through the factory, which is kept for all that follow.

    MissingSessionCwdError when the directory that the manager's session was used in is gone (`cwd` is the fallback it
    names); what the factory raises comes through.
    """
    await _in_thread(partial(_require_cwd, session_manager, os.fspath(cwd)))
    result = create_runtime(
        cwd=os.fspath(cwd), agent_dir=os.fspath(agent_dir), session_manager=session_manager,
        session_start_event=session_start_event,
    )  # fmt: skip
    return AgentSessionRuntime(create_runtime, await _awaited(result))


class AgentSessionRuntime:
    """Holds the live session and replaces it. Made by `create_agent_session_runtime`; used in one event loop.

    Replacements wait for each other; one that is asked for by a handler or callback of the running one raises
    ReplacementInProgressError. A handler that raises stops nothing: it is logged, and a `handler_error` in
    `diagnostics`. What setup, rebind or with_session raise comes through; the new session is live then. Storage is
    used in a thread.
    """

    def __init__(self, create_runtime: CreateRuntime, result: RuntimeResult) -> None:
        self._create_runtime = create_runtime
        self._result = result
        self._handler_errors: list[HandlerErrorDiagnostic] = []
        self._rebind_session: RebindSession | None = None
        self._before_session_invalidate: BeforeSessionInvalidate | None = None
        self._lock = asyncio.Lock()
        self._turn: _Turn | None = None  # the replacement that runs
        self._ending: _Ending | None = None  # how far the end of the session in _result is
        self._lost: BaseException | None = None  # why no session is live
        self._must_reload = self._must_rebind = False
        self._is_disposed = False

    # -- what is live --------------------------------------------------------------------------------------------

    @property
    def session(self) -> Any:
        """The live session, as the factory made it. SessionReplacementError when there is none, as from all five."""
        return self._live().session

    @property
    def services(self) -> Any:
        """The live session's services."""
        return self._live().services

    @property
    def cwd(self) -> str:
        """The working directory of the services."""
        return self._live().services.cwd

    @property
    def diagnostics(self) -> Sequence[Any]:
        """The factory's diagnostics, then a `handler_error` for each handler that raised in the last replacement."""
        return [*(self._live().diagnostics or ()), *self._handler_errors]

    @property
    def model_fallback_message(self) -> str | None:
        """What the factory has to say when it could not use the session's model."""
        return self._live().model_fallback_message

    def set_rebind_session(self, rebind: RebindSession | None) -> None:
        """What to call with each new session, sync or async, once it is live and set up: bind it to the host again."""
        self._rebind_session = rebind

    def set_before_session_invalidate(self, callback: BeforeSessionInvalidate | None) -> None:
        """What to call, without arguments, between the shutdown event and `dispose` of each session; synchronous."""
        self._before_session_invalidate = callback

    # -- replacements --------------------------------------------------------------------------------------------

    async def new_session(
        self, *, parent_session: str | None = None, setup: Setup | None = None, with_session: WithSession | None = None
    ) -> ReplacementResult:  # fmt: skip
        """Go on with a new session in the same place, of the same working directory.

        `setup` is called with its manager; then the session's messages are loaded again, before it is bound.
        """
        async with self._replacing("new_session"):
            if await self._is_stopped(_before_switch("new", None)):
                return {"cancelled": True}
            parent = parent_session or UNSET
            make = partial(self._manager.successor, cwd=self.cwd, parent_session=parent)
            await self._replace("new", _Target(make))
            if setup is not None:
                await self._set_up(setup)
            await self._finish(with_session)
            return {"cancelled": False}

    async def switch_session(
        self, path_or_ref: AnyPath, *, cwd_override: AnyPath | None = None, with_session: WithSession | None = None
    ) -> ReplacementResult:  # fmt: skip
        """Go on with another session: a reference in the manager's database, else a file, made when missing.

        MissingSessionCwdError when the directory it was used in is gone, unless `cwd_override` is used in its place.
        SessionNotFoundError or AmbiguousSessionError for a reference.
        """
        async with self._replacing("switch_session"):
            if await self._is_stopped(_before_switch("resume", os.fspath(path_or_ref))):
                return {"cancelled": True}
            make = partial(self._manager.opened, path_or_ref, cwd=_text(cwd_override))
            await self._replace("resume", _Target(make, fallback_cwd=self.cwd))
            await self._finish(with_session)
            return {"cancelled": False}

    async def fork(
        self, entry_id: str, position: ForkPosition = "before", *, with_session: WithSession | None = None
    ) -> ReplacementResult:  # fmt: skip
        """Go on in a new session with the path to an entry, this session named as its parent.

        "before" a user's message: the path ends above it and its text is returned for the editor; above the first one
        the new session is empty. "at": the path ends with the entry, of whatever type. ForkEntryError for what cannot
        be forked at, EntryNotFoundError while nothing of the session is saved, SessionForkError when the fork cannot
        be written. In memory the manager stays the same.
        """
        if position not in ("before", "at"):
            raise ValueError(f"position is 'before' or 'at', not {position!r}")
        async with self._replacing("fork"):
            if await self._is_stopped({"type": "session_before_fork", "entryId": entry_id, "position": position}):
                return {"cancelled": True}
            manager = self._manager
            leaf_id, text = await _in_thread(partial(_fork_point, manager, entry_id, position))
            make = partial(_forked, manager, leaf_id, self.cwd)
            await self._replace("fork", _Target(make, within=None if manager.is_persisted() else manager))
            await self._finish(with_session)
            return {"cancelled": False} if text is None else {"cancelled": False, "selectedText": text}

    async def import_from_jsonl(self, path: AnyPath, *, cwd_override: AnyPath | None = None) -> ReplacementResult:
        """Take in the session in a file elsewhere and go on with it; that file is only read.

        A database imports it, a folder gets a copy under a name that is free, in memory it is read. The copy goes again
        when the import fails; a database keeps what it imported. SessionImportFileNotFoundError, SessionImportError for
        no session (database), and MissingSessionCwdError as from `switch_session`.
        """
        async with self._replacing("import_from_jsonl"):
            manager, source = self._manager, str(absolute(path))
            target = await _in_thread(partial(manager.import_target, source))
            if await self._is_stopped(_before_switch("resume", target)):
                return {"cancelled": True}
            make = partial(_imported, manager, source, _text(cwd_override), self.cwd)
            await self._replace("resume", _Target(make, fallback_cwd=self.cwd))
            await self._finish(None)
            return {"cancelled": False}

    async def dispose(self) -> None:
        """End the live session for good: shutdown event ("quit"), before_session_invalidate, dispose, close.

        Finishes what a failed replacement began. The session can still be looked at; a second call does nothing.
        """
        async with self._in_turn("dispose"):
            if self._is_disposed:
                return
            try:
                await self._end({"type": "session_shutdown", "reason": "quit"})
            except BaseException as error:
                self._lost = error
                raise
            self._lost, self._is_disposed = None, True

    async def recover(self) -> None:
        """Make a session live and bound again after a replacement that failed or was cancelled; else do nothing.

        The session that was live comes back through the factory: same manager, working directory and agent_dir, and
        nothing is checked again. SessionReplacementError when the factory fails once more.
        """
        async with self._in_turn("recover"):
            if self._is_disposed:
                raise RuntimeDisposedError("recover")
            if self._lost is not None:
                await self._bring_back()
            await self._finish(None)

    # -- the steps of a replacement ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _replacing(self, call: str) -> AsyncIterator[None]:
        """A turn for a replacement: there is a live session to replace."""
        async with self._in_turn(call):
            if self._is_disposed:
                raise RuntimeDisposedError(call)
            self._live()
            self._handler_errors = []
            yield

    @asynccontextmanager
    async def _in_turn(self, call: str) -> AsyncIterator[None]:
        """Wait until no other replacement runs. Code that is part of the one that does would wait for itself."""
        if self._turn in _TURNS.get():
            raise ReplacementInProgressError(call)
        async with self._lock:
            turn = self._turn = _Turn()
            token = _TURNS.set((*(other for other in _TURNS.get() if not other.is_over), turn))
            try:
                yield
            finally:
                _TURNS.reset(token)
                turn.is_over, self._turn = True, None

    async def _is_stopped(self, event: SessionEvent) -> bool:
        answer = await self._emit(event)
        return isinstance(answer, Mapping) and answer.get("cancel") is True

    async def _replace(self, reason: Any, target: _Target) -> None:
        """From making the next session to where it is live, or all the way back to where nothing has happened."""
        previous = self._result.session.session_file
        try:
            await _in_thread(target.make)
            event: SessionShutdownEvent = {
                "type": "session_shutdown", "reason": reason, "targetSessionFile": target.made.get_session_file()
            }  # fmt: skip
            await self._end(event)
            start: SessionStartEvent = {
                "type": "session_start", "reason": reason, "previousSessionFile": previous
            }  # fmt: skip
            await _in_thread(target.take_place)
            result = await self._create(target.manager, target.manager.get_cwd(), start)
        except BaseException as error:
            await self._give_up(target, error)
            raise
        self._go_live(result)
        await _in_thread(target.keep)

    async def _give_up(self, target: _Target, error: BaseException) -> None:
        if self._ending is not None:
            self._lost = error
        try:
            await _in_thread(target.discard)
        except (SessionDBError, OSError) as left:
            log.warning("what was made for the next session is left behind: %s", left)
        if self._lost is not None and isinstance(error, Exception):
            raise self._replacement_error() from error

    async def _end(self, event: SessionShutdownEvent) -> None:
        """End the session in `_result`. Each step once: called again, it goes on where it was cut short."""
        ending = self._ending = self._ending or _Ending()
        if not ending.is_announced:
            ending.is_announced = True
            await self._emit(event)
        if not ending.is_invalidated:
            ending.is_invalidated = True
            if self._before_session_invalidate is not None:
                await self._reported("before_session_invalidate", self._before_session_invalidate)
        if not ending.is_disposed:
            await self._reported("dispose", self._result.session.dispose)
            ending.is_disposed = True
        await self._reported("close", partial(_in_thread, self._manager.close))

    async def _create(self, manager: SessionManager, cwd: str, event: SessionStartEvent) -> RuntimeResult:
        agent_dir = self._result.services.agent_dir
        return await _awaited(
            self._create_runtime(cwd=cwd, agent_dir=agent_dir, session_manager=manager, session_start_event=event)
        )

    def _go_live(self, result: RuntimeResult) -> None:
        self._result, self._ending, self._lost = result, None, None
        self._must_reload, self._must_rebind = False, True

    async def _set_up(self, setup: Setup) -> None:
        self._must_reload = True
        try:
            await _awaited(setup(self._manager))
        except Exception as error:
            try:
                await self._finish(None)  # the session is live, whatever the host makes of the error
            except Exception as another:  # noqa: BLE001 - the first one is told
                error.add_note(f"and when the session was bound: {another!r}")
            raise

    async def _finish(self, with_session: WithSession | None) -> None:
        """Load and bind what waits for it."""
        session = self._result.session
        if self._must_reload:
            context = await _in_thread(self._manager.build_session_context)
            try:
                await _awaited(cast("ReloadingSession", session).set_messages(context["messages"]))
            except Exception:
                self._must_reload = False  # it was tried; what failed must not keep the session from being bound
                raise
            self._must_reload = False
        if self._must_rebind:
            if self._rebind_session is not None:
                await _awaited(self._rebind_session(session))
            self._must_rebind = False
        if with_session is not None:
            context = await _awaited(cast("ContextualSession", session).replaced_context())
            await _awaited(with_session(context))

    async def _bring_back(self) -> None:
        live, manager = self._result.session, self._manager
        event: SessionStartEvent = {
            "type": "session_start", "reason": "resume", "previousSessionFile": live.session_file
        }  # fmt: skip
        try:
            await self._end({"type": "session_shutdown", "reason": "resume", "targetSessionFile": live.session_file})
            result = await self._create(manager, self._result.services.cwd, event)
        except BaseException as error:
            self._lost = error
            if isinstance(error, Exception):
                raise self._replacement_error() from error
            raise
        self._go_live(result)

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _manager(self) -> SessionManager:
        return self._result.session.session_manager

    def _live(self) -> RuntimeResult:
        if self._lost is not None:
            raise self._replacement_error() from self._lost
        return self._result

    def _replacement_error(self) -> SessionReplacementError:
        assert self._lost is not None
        manager = self._manager
        return SessionReplacementError(self._lost, manager.get_session_file() or manager.get_session_id())

    async def _emit(self, event: SessionEvent) -> Any:
        """Give an event to the live session's extensions, if one listens; what they answer."""
        runner = self._result.session.extension_runner
        if await self._reported(event["type"], partial(runner.has_handlers, event["type"])):
            return await self._reported(event["type"], partial(runner.emit, event))
        return None

    async def _reported(self, event: str, call: Callable[[], Any]) -> Any:
        """What the host's code returns; None when it raises, which is reported and stops nothing."""
        asked = _times_cancelled()
        try:
            return await _awaited(call())
        except asyncio.CancelledError as error:
            if _times_cancelled() > asked:
                raise
            self._report(event, error)  # of some task that the host's code waited for
        except Exception as error:  # noqa: BLE001 - the host's code must not stop the order of the steps
            self._report(event, error)
        return None

    def _report(self, event: str, error: BaseException) -> None:
        log.warning("%s: %s", event, error, exc_info=error)
        text = str(error) or type(error).__name__
        self._handler_errors.append({"type": "handler_error", "event": event, "error": text})


class _Turn:
    """One replacement, running or over."""

    is_over = False


@dataclass(slots=True)
class _Ending:
    """Which steps of a session's end were taken; a handler that was cancelled is not called again."""

    is_announced: bool = False
    is_invalidated: bool = False
    is_disposed: bool = False


class _Target:
    """The session that comes next: made beside the live one, until it takes its place. Its methods block.

    `fallback_cwd`: the session's directory must exist, and that is named beside one that does not. `within`: the
    manager that is to hold the session, in place of the one that made it.
    """

    def __init__(
        self, make: Callable[[], SessionManager], *, fallback_cwd: str | None = None,
        within: SessionManager | None = None,
    ) -> None:  # fmt: skip
        self._make = make
        self._fallback_cwd = fallback_cwd
        self._within = within
        self._before: SessionManager | None = None  # what `within` held
        self._made: SessionManager | None = None

    @property
    def made(self) -> SessionManager:
        assert self._made is not None
        return self._made

    @property
    def manager(self) -> SessionManager:
        """The manager to go on with."""
        return self._within or self.made

    def make(self) -> None:
        self._made = self._make()
        if self._fallback_cwd is not None:
            _require_cwd(self._made, self._fallback_cwd)

    def take_place(self) -> None:
        if self._within is not None:
            self._before = copy(self._within)
            self._within.become(self.made)

    def keep(self) -> None:
        """It is live now."""
        self.manager.keep()

    def discard(self) -> None:
        """Leave nothing of it."""
        if self._within is not None and self._before is not None:
            self._within.become(self._before)
        if self._made is not None:
            self._made.discard()


def _require_cwd(manager: SessionManager, fallback_cwd: str) -> None:
    file, cwd = manager.get_session_file(), manager.get_cwd()
    if file and cwd and not os.path.isdir(cwd):  # noqa: PTH112 - never raises
        raise MissingSessionCwdError(file, cwd, fallback_cwd)


def _fork_point(manager: SessionManager, entry_id: Any, position: ForkPosition) -> tuple[str | None, str | None]:
    """The leaf of the fork, None for before the first entry, and the text that goes back into the editor."""
    entry = manager.get_entry(entry_id) if type(entry_id) is str else None
    if entry is None:
        raise ForkEntryError(entry_id)
    if position == "at":
        return entry_id, None
    if role_of(entry) != "user":
        raise ForkEntryError(entry_id)
    parent_id = entry.get("parentId")
    return parent_id if type(parent_id) is str else None, _text_of_message(entry["message"].get("content"))


def _text_of_message(content: Any) -> str:
    if type(content) is str:
        return content
    blocks = content if type(content) is list else []
    texts = (block.get("text") for block in blocks if type(block) is dict and block.get("type") == "text")
    return "".join(text for text in texts if type(text) is str)


def _forked(manager: SessionManager, leaf_id: str | None, cwd: str) -> SessionManager:
    if leaf_id is not None and manager.is_persisted() and not manager.is_saved():
        raise EntryNotFoundError(leaf_id)  # as pi, which looks into the file
    try:
        if leaf_id is None:
            return manager.successor(cwd=cwd, parent_session=manager.get_session_file() or UNSET)
        return manager.branched(leaf_id)
    except EntryNotFoundError:
        raise
    except (SessionDBError, OSError) as error:
        raise SessionForkError from error


def _imported(manager: SessionManager, source: str, cwd: str | None, fallback_cwd: str) -> SessionManager:
    """A database keeps what it has imported, so the directory is looked for before."""
    if manager.is_in_database():
        folder = manager.cwd_stored_in(source) if cwd is None else cwd
        if folder and not os.path.isdir(folder):  # noqa: PTH112 - never raises
            raise MissingSessionCwdError(source, folder, fallback_cwd)
    return manager.imported(source, cwd=cwd)


def _text(path: AnyPath | None) -> str | None:
    return None if path is None else os.fspath(path)


def _before_switch(reason: Literal["new", "resume"], target: str | None) -> SessionBeforeSwitchEvent:
    return {"type": "session_before_switch", "reason": reason, "targetSessionFile": target}


async def _awaited(value: T | Awaitable[T]) -> T:
    return await value if inspect.isawaitable(value) else value


def _times_cancelled() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread, and to its end: a cancellation that comes meanwhile is raised behind it."""
    work = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # seen; whoever cancelled is told of that alone
        raise cancelled
    return work.result()
