"""A host as a TUI or bot is one: sessions around managers, extensions that listen, and a log of what is called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sessiondb import AgentSessionRuntime, SessionManager, create_agent_session_runtime
from tests.test_live_tree import Home

BEFORE_EVENTS = ("session_before_switch", "session_before_fork")
EVENTS = (*BEFORE_EVENTS, "session_shutdown")

Hook = Callable[..., Any]


class Host:
    """Logs each call under the names of the recorded scenarios. `hooks` has what else is to happen in one, by name."""

    def __init__(self, home: Home, tmp_path: Path) -> None:
        self.home = home
        self.root = tmp_path
        self.project = tmp_path / "project"
        self.project.mkdir(exist_ok=True)
        self.agent_dir = str(tmp_path / "agent")
        self.log: list[dict[str, Any]] = []
        self.handlers: tuple[str, ...] = EVENTS
        self.hooks: dict[str, Hook] = {}
        self.made: list[HostSession] = []
        self._runtime: AgentSessionRuntime | None = None

    @property
    def runtime(self) -> AgentSessionRuntime:
        assert self._runtime is not None
        return self._runtime

    @property
    def manager(self) -> SessionManager:
        manager: SessionManager = self.runtime.session.session_manager
        return manager

    async def start(
        self, manager: SessionManager | None = None, build: Callable[[SessionManager], Any] | None = None
    ) -> Any:  # fmt: skip
        """Make the runtime around a manager, by default of a new pi session in the home; what `build` returns."""
        manager = manager or self.home.create(str(self.project), dialect="pi")
        built = build(manager) if build else None
        self._runtime = await create_agent_session_runtime(
            self.create_runtime, cwd=self.project, agent_dir=self.agent_dir, session_manager=manager
        )
        self.runtime.set_rebind_session(self._rebind)
        self.runtime.set_before_session_invalidate(self._before_invalidate)
        self.log.clear()
        return built

    async def create_runtime(self, **given: Any) -> Any:
        manager, event = given["session_manager"], given["session_start_event"]
        leaf = manager.get_leaf_entry()
        self.log.append(
            {
                "call": "createRuntime",
                "cwd": given["cwd"],
                "file": manager.get_session_file(),
                "entries": len(manager.get_entries()),
                "leaf": None if leaf is None else leaf.get("type"),
                "sameManager": bool(self.made) and manager is self.made[-1].session_manager,
                "parentSession": manager.get_header().get("parentSession"),
                "sessionStartEvent": event,
            }
        )
        await self.reach("createRuntime", given)
        session = HostSession(self, manager)
        self.made.append(session)
        services = SimpleNamespace(cwd=given["cwd"], agent_dir=given["agent_dir"])
        return SimpleNamespace(session=session, services=services, diagnostics=[], model_fallback_message=None)

    async def reach(self, name: str, *args: Any) -> Any:
        """A named place: what the test has put there happens."""
        found = self.hooks.get(name)
        result = found(*args) if found else None
        return await result if asyncio.iscoroutine(result) else result

    async def _rebind(self, session: Any) -> None:
        self.log.append({"call": "rebindSession", "isNew": session is not self.made[0]})
        await self.reach("rebindSession", session)

    def _before_invalidate(self) -> Any:
        self.log.append({"call": "beforeSessionInvalidate"})
        return self.reach_now("beforeSessionInvalidate")

    def reach_now(self, name: str) -> None:
        if found := self.hooks.get(name):
            found()

    async def with_session(self, context: Any) -> None:
        self.log.append({"call": "withSession", "ctx": context})
        await self.reach("withSession", context)

    def calls(self) -> list[str]:
        """The log without what went along: events by their type, calls by their name."""
        return [step.get("call") or step["emit"]["type"] for step in self.log if "call" in step or "emit" in step]

    def shown(self, value: Any) -> Any:
        """A value as the recorded scenarios show it: folders, generated names and ids by placeholders, no undefined."""
        if isinstance(value, dict):
            return {key: self.shown(item) for key, item in value.items() if item is not None}
        if isinstance(value, list):
            return [self.shown(item) for item in value]
        if not isinstance(value, str):
            return value
        value = value.replace(str(self.root), "$HOME")
        value = re.sub(r"\d{4}-\d\d-\d\dT[\d-]+Z_[0-9a-f-]{36}", "<auto>", value)
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", "<session>", value)
        return re.sub(r"\b[0-9a-f]{8}\b", "<id>", value)


class HostSession:
    """A session of the host, and its own extension runner."""

    def __init__(self, host: Host, manager: SessionManager) -> None:
        self.host = host
        self.session_manager = manager
        self.messages: list[Any] = manager.build_session_context()["messages"]
        self.disposed = 0
        self.extension_runner = self

    @property
    def session_file(self) -> str | None:
        return self.session_manager.get_session_file()

    def has_handlers(self, event_type: str) -> bool:
        return event_type in self.host.handlers

    async def emit(self, event: dict[str, Any]) -> Any:
        self.host.log.append({"emit": event, "keys": list(event)})
        return await self.host.reach(event["type"], event)

    async def dispose(self) -> None:
        self.host.log.append({"call": "session.dispose"})
        await self.host.reach("session.dispose")
        self.disposed += 1

    async def set_messages(self, messages: list[Any]) -> None:
        self.host.log.append({"call": "setMessages"})
        await self.host.reach("setMessages")
        self.messages = messages

    def replaced_context(self) -> Any:
        return {"replaced": True}
