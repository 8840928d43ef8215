"""OpenTelemetry spans, one per tool call and per control operation; off unless asked for.

On when the extra `otel` is installed and the standard variables name an exporter
(OTEL_TRACES_EXPORTER, or an OTLP endpoint). A span says bundle, tool, outcome and time; never
arguments, results, tokens, episode ids or messages. It is made after the call has ended and is a
root of its own: a trace id that an agent sends is not taken over, so that an agent can neither join
nor forge a trace. The provider is not the process's global one: libraries that trace by themselves,
with arguments, stay silent.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from astra_mcp import __version__
from astra_mcp.errors import UsageError
from astra_mcp.host.metrics import OK
from astra_mcp.host.service import McpService

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("astra_mcp.host")
SERVICE: Final = "astra-mcp"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


class CallSpans:
    """Makes the spans of one host.

    Args:
        provider: Where they go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE, __version__)
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    def called(
        self, service: McpService, tool: str, outcome: str, seconds: float, *, control: bool
    ) -> None:
        """One span of a call that has just ended; a tool that does not exist goes unnamed."""
        end = time.time_ns()
        name = tool if tool in service.tools().names else "unknown"
        what = {"astra.operation": name} if control else {"astra.bundle": service.name}
        span = self._tracer.start_span(
            f"control {name}" if control else f"tools/call {name}",
            kind=self._kind,
            start_time=end - int(seconds * 1e9),
            attributes={
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": name,
                "astra.outcome": outcome,
                **what,
            },
        )
        if outcome != OK:
            span.set_status(self._failed)
        span.end(end)

    def close(self) -> None:
        """Send what is left; blocks as long as the exporter needs, so call it in a thread."""
        self._provider.shutdown()


def spans_from(environ: Mapping[str, str] = os.environ) -> CallSpans | None:
    """The spans that the environment asks for, or None.

    Raises:
        UsageError: it names an exporter that is not installed.
    """
    names = _exporters(environ)
    if not names:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("OTEL_* asks for spans, and opentelemetry-sdk is not installed: no spans")
        return None
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {"service.name": SERVICE})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return CallSpans(provider)


def _exporter(name: str) -> SpanExporter:
    found = [*entry_points(group="opentelemetry_traces_exporter", name=name)]
    try:
        exporter: SpanExporter = found[0].load()()
    except (IndexError, ImportError) as error:
        raise UsageError(
            f"OTEL_* asks for the exporter {name}, which is not installed.",
            "Install astra-mcp[otel], or set OTEL_TRACES_EXPORTER=none.",
        ) from error
    return exporter


def _exporters(environ: Mapping[str, str]) -> list[str]:
    """Entry points of the exporters that the standard variables name."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    named = environ.get("OTEL_TRACES_EXPORTER", "")
    if not named and any(environ.get(key) for key in _ENDPOINTS):
        named = "otlp"
    protocol = next((environ[key] for key in _PROTOCOLS if environ.get(key)), "http/protobuf")
    names = [name.strip() for name in named.split(",")]
    return [
        _OTLP.get(protocol, protocol) if name == "otlp" else name
        for name in names
        if name not in ("", "none")
    ]
