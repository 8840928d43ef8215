"""The host put together: which URL is served by what.

| URL | served by |
|---|---|
| /envs/<id>/mcp, /envs/<id>/<server>/mcp | a fresh world per 2025-era session |
| POST /play/<id> | opens an ungraded episode and answers its URL |
| /episodes/<token>/mcp, /episodes/<token>/<server>/mcp, /agent/mcp | the agent of one episode |
| /control/mcp | the control plane |
| /sdk/<name>/mcp | an operator's own SDK server |
| /healthz | versions, layers, counts |

Routing is dictionary look-ups. Every token that does not open what it was shown to gets one answer,
whatever is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import anyio

from astra_mcp import __version__
from astra_mcp.errors import AstraError, BusyError
from astra_mcp.host.catalog import Catalog
from astra_mcp.host.control import ControlService
from astra_mcp.host.episodes import Episodes, Live
from astra_mcp.host.http import HttpRequest, Security, bearer_token, respond_json
from astra_mcp.host.planes import EpisodeService, WorldService
from astra_mcp.host.play import Plays
from astra_mcp.host.router import Plain, Route, Router
from astra_mcp.host.sdk import SdkMount
from astra_mcp.host.service import McpService
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.tokens import refused, same_token, token_hash
from astra_mcp.host.transport import Endpoint, McpTransport
from astra_mcp.sandbox import Sandbox
from astra_mcp.settings import HostSettings

Json = Any
SWEEP_S: Final = 1.0
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
log = logging.getLogger("astra_mcp.host")


class Host:
    """Everything that one listening process serves.

    Args:
        catalog: The bundles.
        settings: Limits.
        sandbox: Where worlds run; its layers stand in /healthz.
        control_token: Opens the control plane; only its hash is kept.
        mounts: The operator's own SDK servers by name; whoever made them runs them.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: HostSettings,
        sandbox: Sandbox,
        control_token: str,
        mounts: Mapping[str, SdkMount] | None = None,
    ) -> None:
        self.url = ""
        self.settings = settings
        self.catalog = catalog
        transport = McpTransport(body_limit=settings.body_bytes)
        self.episodes = Episodes(catalog, settings, lambda: self.url, transport.streams.close)
        self.plays = Plays(catalog, settings)
        self._sandbox = sandbox
        self._control_hash = token_hash(control_token)
        control = ControlService(catalog, self.episodes)
        self._control = Endpoint(service=control, list_changed=False)
        self._envs: dict[tuple[str, str | None], Endpoint] = {}
        self._mounts = dict(mounts or {})
        hosts = LOOPBACK | {name.lower() for name in settings.allowed_hosts}
        self.router = Router(
            self._resolve,
            transport,
            Security(hosts=frozenset(hosts)),
            [mount.drain for mount in self._mounts.values()],
        )

    # ---- routing ----------------------------------------------------------------------

    async def _resolve(self, request: HttpRequest) -> Route | None:
        match request.segments:
            case ("episodes", token, "mcp"):
                return self._agent(token, None, request)
            case ("episodes", token, server, "mcp"):
                return self._agent(token, server, request)
            case ("agent", "mcp"):
                return self._agent(bearer_token(request.headers) or "", None, request)
            case ("control", "mcp"):
                if not same_token(bearer_token(request.headers), self._control_hash):
                    raise refused()
                return self._control
            case ("envs", bundle_id, "mcp"):
                return await self._env(bundle_id, None)
            case ("envs", bundle_id, server, "mcp"):
                return await self._env(bundle_id, server)
            case ("play", bundle_id) if self.catalog.knows(bundle_id):
                return Plain(lambda r: self._play(r, bundle_id), ("POST",))
            case ("sdk", name, "mcp") if name in self._mounts:
                return self._mounts[name].route
            case ("healthz",):
                return Plain(self._healthz)
        return None

    def _agent(self, token: str, server: str | None, request: HttpRequest) -> Route:
        """The endpoint of an open episode or play.

        A bearer token shown beside the one in the URL must be the same: whoever holds another one
        is told nothing about this one.
        """
        shown = bearer_token(request.headers)
        if shown is not None and not same_token(shown, token_hash(token)):
            raise refused()
        live = self.episodes.by_token(token)
        if live is not None and live.episode.status == "open":
            endpoint = self._episode_endpoint(live, server)
        else:
            endpoint = self.plays.endpoint(token, server)
        if endpoint is None:
            raise refused()
        return endpoint

    def _episode_endpoint(self, live: Live, server: str | None) -> Endpoint | None:
        names = {s.name for s in live.episode.bundle.manifest.servers}
        if server is not None and server not in names:
            return None
        if server not in live.endpoints:
            service = EpisodeService(live.episode, live.touch, server)
            # Always announced: a capability that some tasks have would tell of turns to come.
            live.endpoints[server] = Endpoint(service=service, list_changed=True)
        return live.endpoints[server]

    async def _env(self, bundle_id: str, server: str | None) -> Endpoint | None:
        if not self.catalog.knows(bundle_id):
            return None
        key = (bundle_id, server)
        if key not in self._envs:
            held = await self.catalog.hold(bundle_id)
            held.release()
            if server is not None and server not in {s.name for s in held.world.servers}:
                return None
            if key in self._envs:  # another request made it while this one loaded the bundle
                return self._envs[key]
            sessions = Sessions(
                lambda _client: self._open_env(bundle_id, server),
                self._close_env,
                idle_s=self.settings.idle_s,
                limit=self.settings.max_env_sessions,
            )
            self._envs[key] = Endpoint(
                sessions=sessions, eras=frozenset({"2025"}), list_changed=False
            )
        return self._envs[key]

    async def _open_env(self, bundle_id: str, server: str | None) -> McpService:
        if self._session_count() >= self.settings.max_env_sessions:
            raise BusyError(
                f"This host keeps {self.settings.max_env_sessions} sessions on /envs.",
                "Try again later, or end a session with DELETE.",
            )
        held = await self.catalog.hold(bundle_id)
        try:
            environment = await held.world.open()
        except BaseException:
            held.release()
            raise
        return WorldService(held.world, held.title, environment, server, held.release)

    def _session_count(self) -> int:
        return sum(len(endpoint.sessions or ()) for endpoint in self._envs.values())

    async def _close_env(self, service: McpService) -> None:
        assert isinstance(service, WorldService)
        await service.aclose()

    async def _play(self, request: HttpRequest, bundle_id: str) -> None:
        token = await self.plays.open(bundle_id)
        await respond_json(request, {"url": f"{self.url}/episodes/{token}/mcp"})

    async def _healthz(self, request: HttpRequest) -> None:
        await respond_json(request, self.health())

    def health(self) -> Mapping[str, Json]:
        """What /healthz shows; nothing of it is secret or sealed."""
        return {
            "status": "ok",
            "version": __version__,
            "sandbox": dict(self._sandbox.layers),
            "missing_layers": sorted(self.settings.accept_missing_layers),
            "unaudited": self.settings.unaudited,
            "bundles": len(self.catalog.ids),
            "episodes": self.episodes.open_count,
            "sessions": self._session_count(),
            "plays": len(self.plays),
        }

    # ---- life -------------------------------------------------------------------------

    async def sweep_forever(self) -> None:
        """End what nobody uses any more, once a second, until cancelled."""
        while True:
            await anyio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except AstraError as error:
                log.error("sweep: %s", error.code)

    async def sweep(self) -> None:
        """End every episode, session and play whose lease is over."""
        await self.episodes.sweep()
        await self.plays.sweep()
        for endpoint in list(self._envs.values()):
            if endpoint.sessions is not None:
                await endpoint.sessions.sweep()

    async def aclose(self) -> None:
        """End everything; with a journal, open episodes wait on disk."""
        await self.episodes.aclose()
        await self.plays.aclose()
        for endpoint in self._envs.values():
            if endpoint.sessions is not None:
                await endpoint.sessions.aclose()
        await self.catalog.aclose()
