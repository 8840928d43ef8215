"""A plain chat loop over any OpenAI-compatible endpoint.

The model gets the conversation and the tools in OpenAI's form; it calls tools (several in one
message are run in order), talks to the user in messages without a call, and ends with a line
`ANSWER: ...`. A model that stops without one submits its last text; one that runs out of turns,
tokens, time or context submits nothing, and that is graded. Retries live in one place, here: 429,
5xx and lost connections, with Retry-After; the library's own are off. The key is read from an
environment variable by name and stands in no record and no message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import openai
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, ConfigDict, Field, field_validator
from yarl import URL

from astra_clients.agents.base import ANSWER, AgentContext, ToolCall, clean
from astra_mcp.errors import ClientError, UsageError

Json = Any
_NO_KEY: Final = "none"
_TOO_LONG: Final = ("context_length_exceeded", "maximum context length", "too many tokens")
_ANSWER_LINE: Final = re.compile(rf"^\W*{re.escape(ANSWER)}", re.MULTILINE | re.IGNORECASE)
_MAX_BACKOFF_S: Final = 30.0


class ChatSettings(BaseModel):
    """What the chat agent may be told; none of it is secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    model: str = Field(min_length=1)
    """Name of the model at the endpoint."""
    base_url: str | None = None
    """Endpoint, such as http://127.0.0.1:8000/v1; default: OPENAI_BASE_URL, else OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key."""
    temperature: float | None = None
    """Sampling temperature; default: the endpoint's."""
    top_p: float | None = None
    """Nucleus sampling; default: the endpoint's."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest single reply, in tokens; default: the endpoint's."""
    max_turns: int = Field(default=32, ge=1)
    """Most replies of the model in one episode."""
    episode_tokens: int | None = Field(default=None, ge=1)
    """Most tokens in one episode, prompts and replies as the endpoint counts; default: any."""
    episode_s: float = Field(default=1800.0, gt=0)
    """Longest episode, in seconds."""
    request_s: float = Field(default=300.0, gt=0)
    """Longest wait for one reply, in seconds."""
    retries: int = Field(default=4, ge=0)
    """How often one request may be repeated."""
    seeded: bool = False
    """Send the episode's seed as the sampling seed."""
    extra_body: dict[str, Json] = {}
    """More fields of the request body, for endpoints that know them."""

    @field_validator("base_url")
    @classmethod
    def _no_password_in_the_url(cls, value: str | None) -> str | None:
        if value is not None and URL(value).user is not None:
            raise ValueError("base_url must not hold a user or password; use the key's variable")
        return value


class OutOfBudget(Exception):
    """Turns, tokens, time or context are used up."""


class ChatAgent:
    """Plays one episode with a model.

    Args:
        settings: Model, endpoint and limits.
        client: A client to use instead of making one; its own retries must be off.

    Raises:
        UsageError: OpenAI's own endpoint is asked for and the key's variable is not set.
    """

    def __init__(
        self,
        settings: ChatSettings,
        client: openai.AsyncOpenAI | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings
        self._client = client or make_client(settings)
        self._owns_client = client is None
        self._seed = seed
        self._deadline = 0.0

    async def run(self, ctx: AgentContext) -> str | None:
        """Play until the answer; see the module."""
        self._deadline = time.monotonic() + self.settings.episode_s
        ctx.usage.update(model=self.settings.model, requests=0, prompt_tokens=0)
        ctx.usage.update(completion_tokens=0)
        try:
            return await self._loop(ctx)
        except OutOfBudget as end:
            ctx.usage["stopped_by"] = str(end)
            return None
        finally:
            if self._owns_client:
                with anyio.move_on_after(2, shield=True):
                    await self._client.close()

    async def _loop(self, ctx: AgentContext) -> str | None:
        for _ in range(self.settings.max_turns):
            tools = ctx.openai_tools(await ctx.tools())
            reply = await self._ask(ctx, tools)
            message = reply.choices[0].message
            text = clean(message.content or "")
            extra = _reasoning(message.model_extra)
            calls = [
                ToolCall(call.id, call.function.name, call.function.arguments)
                for call in message.tool_calls or []
                if call.type == "function"
            ]
            if calls:
                await ctx.call_all(text, calls, extra)
            elif _ANSWER_LINE.search(text) or not text.strip():
                ctx.messages.append({"role": "assistant", "content": text, **extra})
                return text
            else:
                user = await ctx.say(text, extra)
                if user.kind == "end":
                    return text
        raise OutOfBudget("turns")

    # ---- one request -------------------------------------------------------------------------

    async def _ask(self, ctx: AgentContext, tools: Sequence[Json]) -> ChatCompletion:
        self._check_tokens(ctx)
        request = self._request(ctx.messages, tools)
        attempt = 0
        while True:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise OutOfBudget("time")
            try:
                timeout = min(self.settings.request_s, left_s)
                with anyio.fail_after(timeout):
                    reply = await self._client.chat.completions.create(**request, timeout=timeout)
                return self._count(ctx, reply)
            except (openai.APIConnectionError, openai.InternalServerError, TimeoutError) as error:
                failure: Exception = error
            except openai.RateLimitError as error:
                failure = error
            except openai.APIStatusError as error:
                raise self._refused(error) from None
            except (openai.APIResponseValidationError, ValueError) as error:
                raise ClientError(
                    f"The endpoint {self._where()} answered with what is no chat completion.",
                    "Check base_url: it usually ends in /v1.",
                ) from error
            attempt += 1
            if attempt > self.settings.retries:
                raise self._gone(failure, attempt) from None
            await self._pause(_wait_s(failure, attempt))

    def _request(self, messages: Sequence[Json], tools: Sequence[Json]) -> dict[str, Json]:
        s = self.settings
        fields = {
            "model": s.model,
            "messages": [_without_reasoning(message) for message in messages],
            "tools": list(tools) or None,
            "temperature": s.temperature,
            "top_p": s.top_p,
            "max_tokens": s.max_tokens,
            "seed": self._seed if s.seeded else None,
            "extra_body": s.extra_body or None,
        }
        return {key: value for key, value in fields.items() if value is not None}

    def _count(self, ctx: AgentContext, reply: ChatCompletion) -> ChatCompletion:
        # The library hands on whatever text an endpoint sends in place of a completion.
        if not isinstance(reply, ChatCompletion) or not reply.choices:
            raise ClientError(
                f"The endpoint {self._where()} answered with what is no chat completion.",
                "Check base_url: it usually ends in /v1.",
            )
        ctx.usage["requests"] += 1
        if reply.usage is not None:
            ctx.usage["prompt_tokens"] += reply.usage.prompt_tokens
            ctx.usage["completion_tokens"] += reply.usage.completion_tokens
        return reply

    def _check_tokens(self, ctx: AgentContext) -> None:
        """A reply that passes the bound is still used; the next one is not asked for."""
        used = ctx.usage["prompt_tokens"] + ctx.usage["completion_tokens"]
        bound = self.settings.episode_tokens
        if bound is not None and used >= bound:
            raise OutOfBudget("tokens")

    async def _pause(self, wait_s: float) -> None:
        if time.monotonic() + wait_s >= self._deadline:
            raise OutOfBudget("time")
        await anyio.sleep(wait_s)

    def _refused(self, error: openai.APIStatusError) -> Exception:
        """The endpoint says no: out of context ends the attempt, anything else is a failure."""
        words = str(error.message).lower()
        if error.status_code in (400, 413) and any(part in words for part in _TOO_LONG):
            return OutOfBudget("context")
        return ClientError(
            f"The endpoint of model {self.settings.model} refused a request: HTTP "
            f"{error.status_code}, {self._redacted(error.message)}.",
            f"Check the model's name, the endpoint and the key in {self.settings.api_key_env}.",
        )

    def _gone(self, error: Exception, attempts: int) -> ClientError:
        return ClientError(
            f"The endpoint {self._where()} of model {self.settings.model} gave no reply in "
            f"{attempts} attempts: {_what(error)}.",
            "Check that it runs and that base_url ends in /v1, or lower the concurrency.",
        )

    def _where(self) -> str:
        """The endpoint without anything secret that its URL may hold."""
        url = self._client.base_url
        return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}{url.path}"

    def _redacted(self, words: str) -> str:
        key = self._client.api_key
        short = words[:300].rstrip(".")
        return short.replace(key, "[key]") if key and key != _NO_KEY else short


def make_client(settings: ChatSettings) -> openai.AsyncOpenAI:
    """A client without retries of its own.

    Raises:
        UsageError: OpenAI's own endpoint is asked for and the key's variable is not set.
    """
    key = os.environ.get(settings.api_key_env)
    base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL")
    if not key and base_url is None:
        raise UsageError(
            f"The environment variable {settings.api_key_env} is not set.",
            "Set it to the key, or name an endpoint that needs none by base_url.",
        )
    return openai.AsyncOpenAI(api_key=key or _NO_KEY, base_url=base_url, max_retries=0)


def _what(error: Exception) -> str:
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    return type(error).__name__


def _wait_s(error: Exception, attempt: int) -> float:
    """Retry-After when the endpoint says so, else a doubling pause."""
    backoff = min(_MAX_BACKOFF_S, 0.5 * 2.0 ** (attempt - 1))
    if not isinstance(error, openai.APIStatusError):
        return backoff
    try:
        asked = float(error.response.headers.get("retry-after", backoff))
    except ValueError:
        return backoff
    return max(0.0, asked)


def _reasoning(extra: Mapping[str, Json] | None) -> dict[str, Json]:
    """A model's reasoning, where the endpoint shows it: kept in the record."""
    words = (extra or {}).get("reasoning_content")
    return {"reasoning_content": clean(words)} if isinstance(words, str) and words else {}


def _without_reasoning(message: Mapping[str, Json]) -> dict[str, Json]:
    """Messages go back to the model without earlier reasoning, as chat templates want it."""
    return {key: value for key, value in message.items() if key != "reasoning_content"}
