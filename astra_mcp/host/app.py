"""The host put together: which URL is served by what.

| URL | served by |
|---|---|
| /envs/<id>/mcp, /envs/<id>/<server>/mcp | a fresh world per 2025-era session |
| POST /play/<id> | opens an ungraded episode and answers its URL |
| /episodes/<token>/mcp, /episodes/<token>/<server>/mcp, /agent/mcp | the agent of one episode |
| /control/mcp | the control plane |
| /sdk/<name>/mcp | an operator's own SDK server |
| /healthz | versions, layers, counts |
| /metrics | what Prometheus scrapes; needs the control token or the one for metrics |

Routing is dictionary look-ups. Every token that does not open what it was shown to gets one answer,
whatever is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.to_thread

from astra_mcp import __version__
from astra_mcp.concurrency import within
from astra_mcp.errors import BundleError, BusyError, HttpError, LoadError
from astra_mcp.host.again import again
from astra_mcp.host.calls import Calls
from astra_mcp.host.catalog import Catalog
from astra_mcp.host.connection import Traffic
from astra_mcp.host.control import ControlService
from astra_mcp.host.episodes import Episodes, Live
from astra_mcp.host.exposition import CONTENT_TYPE
from astra_mcp.host.http import HttpRequest, Security, bearer_token, respond_json
from astra_mcp.host.planes import EpisodeService, WorldService
from astra_mcp.host.play import Plays
from astra_mcp.host.process import look
from astra_mcp.host.restore import read_finished
from astra_mcp.host.router import Plain, Route, Router
from astra_mcp.host.sdk import SdkMount
from astra_mcp.host.service import McpService
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.shards import mark
from astra_mcp.host.tokens import refused, same_token, token_hash
from astra_mcp.host.transport import Endpoint, McpTransport
from astra_mcp.host.watch import Facts, Spans, Watch
from astra_mcp.sandbox import Sandbox
from astra_mcp.settings import LOAD_S, HostSettings

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
        metrics_token: Opens /metrics and nothing else; the control token opens that, too.
        spans: Told of each call.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: HostSettings,
        sandbox: Sandbox,
        control_token: str,
        mounts: Mapping[str, SdkMount] | None = None,
        metrics_token: str | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.url = ""
        self.settings = settings
        self.catalog = catalog
        transport = McpTransport(calls=Calls(self._called), body_limit=settings.body_bytes)
        self._transport = transport
        self.traffic = Traffic()
        self.episodes = Episodes(
            catalog, settings, lambda: self.url, transport.streams.close, read_finished
        )
        self.plays = Plays(catalog, settings)
        self._sandbox = sandbox
        self._control_hash = token_hash(control_token)
        self._metrics_hash = token_hash(metrics_token) if metrics_token else self._control_hash
        control = ControlService(catalog, self.episodes)
        self.watch = Watch(control, spans)
        self._control = Endpoint(service=control, list_changed=False)
        self._envs: dict[tuple[str, str | None], Endpoint] = {}
        self._mounts = dict(mounts or {})
        hosts = LOOPBACK | {name.lower() for name in settings.allowed_hosts}
        self.security = Security(hosts=frozenset(hosts))
        self.router = Router(
            self._resolve,
            transport,
            self.security,
            [self.episodes.drain, *(mount.drain for mount in self._mounts.values())],
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
            case ("envs" | "play", *_) if not self.settings.open_worlds:
                return None
            case ("envs", bundle_id, "mcp"):
                return await self._env(bundle_id, None)
            case ("envs", bundle_id, server, "mcp"):
                return await self._env(bundle_id, server)
            case ("play", bundle_id) if self.catalog.knows(bundle_id):
                return Plain(lambda r: self._play(r, bundle_id), ("POST",))
            case ("sdk", name, "mcp") if name in self._mounts:
                return self._mounts[name].route
            case ("envs",):
                return Plain(self._list_envs)
            case ("healthz",):
                return Plain(self._healthz)
            case ("metrics",):
                shown = bearer_token(request.headers)
                hashes = (self._control_hash, self._metrics_hash)
                if not any(same_token(shown, kept) for kept in hashes):
                    raise refused()
                return Plain(self._metrics)
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
            if live is not None:
                self.episodes.settle(live)  # its agent ended it; the sweep has not come by yet
            endpoint = self.plays.endpoint(token, server)
        if endpoint is None:
            return self._again(token, request)
        return endpoint

    def _again(self, token: str, request: HttpRequest) -> Route:
        """What a dead token opens: the answer to a submission that is sent again."""
        live = self.episodes.submitted_by(token)
        call_id = live.episode.submitted_by if live is not None else None
        endpoint = self._episode_endpoint(live, None) if live is not None else None
        if call_id is None or endpoint is None or request.method != "POST":
            raise refused()
        return again(self._transport, endpoint, call_id)

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
            with _servable(bundle_id):
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
                mark=mark(self.settings),
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
        with _servable(bundle_id):
            held = await self.catalog.hold(bundle_id)
            try:
                with within(LOAD_S, "Opening a world"):
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
        with _servable(bundle_id):
            token = await self.plays.open(bundle_id)
        await respond_json(request, {"url": f"{self.url}/episodes/{token}/mcp"})

    async def _list_envs(self, request: HttpRequest) -> None:
        urls = {key: f"{self.url}/envs/{key}/mcp" for key in self.catalog.ids}
        await respond_json(request, {"environments": urls})

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
            "waiting": self.episodes.admission.waiting,
        }

    # ---- watching ---------------------------------------------------------------------

    def _called(self, service: McpService, tool: str, code: str, seconds: float) -> None:
        self.watch.called(service, tool, code, seconds)

    async def _metrics(self, request: HttpRequest) -> None:
        page = self.watch.page(await self._facts())
        await request.respond(200, page, [(b"content-type", CONTENT_TYPE)])

    async def _facts(self) -> Facts:
        census, admission = self._sandbox.census(), self.episodes.admission
        processes = [*census.templates, *census.workers]
        if census.zygote is not None:
            processes.append(census.zygote)
        process = await anyio.to_thread.run_sync(look, processes, abandon_on_cancel=True)
        return Facts(
            gauges={
                "episodes_open": ("Open episodes.", self.episodes.open_count),
                "sessions_open": ("Open sessions on /envs.", self._session_count()),
                "plays_open": ("Open plays.", len(self.plays)),
                "calls_in_flight": ("Calls and operations that run.", len(self._transport.calls)),
                "http_connections": ("Open connections.", len(self.traffic.connections)),
                "bundles": ("Bundles served.", len(self.catalog.ids)),
                "bundles_loaded": ("Bundles in memory.", self.catalog.loaded_count),
                "sandbox_templates": ("Bundles whose code is loaded.", len(census.templates)),
                "sandbox_workers": ("Workers alive.", len(census.workers)),
                "admission_slots": ("Most episodes open at a time.", self.settings.max_episodes),
                "admission_taken": ("Slots in use.", admission.taken),
                "admission_waiting": ("Requests that wait for a slot.", admission.waiting),
            },
            episodes=self.episodes.counts,
            admission=admission.counts,
            workers_started=census.started,
            responses=self.traffic.answers,
            process=process,
        )

    # ---- life -------------------------------------------------------------------------

    async def sweep_forever(self) -> None:
        """End what nobody uses any more, once a second, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(SWEEP_S)
                # Not awaited: one that waits for a call must not keep the others waiting.
                tasks.start_soon(self._sweep_safely)

    async def _sweep_safely(self) -> None:
        try:
            await self.sweep()
        except Exception:  # whatever it was, leases must go on ending
            log.exception("a sweep failed")

    async def sweep(self) -> None:
        """End every episode, session and play whose lease is over, and drop unused bundles."""
        await self.episodes.sweep()
        await self.plays.sweep()
        await self.catalog.shrink()
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


@contextmanager
def _servable(bundle_id: str) -> Iterator[None]:
    """Whoever may use a world learns that it cannot be loaded; why is for its operator."""
    try:
        yield
    except (BundleError, LoadError) as error:
        log.warning("%s cannot be served: %s", bundle_id, error)
        raise HttpError(
            503,
            "This environment cannot be loaded.",
            "Ask whoever runs this host: its log says why.",
            [(b"retry-after", b"60")],
        ) from error
