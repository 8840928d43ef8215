"""Whatever is logged, and however, no token stands in the line."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.errors import BundleError
from astra_mcp.host.logs import configure, redact

TOKENS = st.binary(min_size=32, max_size=32).map(
    lambda raw: __import__("base64").urlsafe_b64encode(raw).rstrip(b"=").decode()
)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Our handler on a buffer, and the root logger as it was afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    buffer = io.StringIO()
    configure("DEBUG", buffer)
    yield buffer
    root.handlers[:], root.level = before


@given(
    TOKENS,
    st.sampled_from(
        [
            "GET /episodes/{}/mcp HTTP/1.1",
            "{}",
            "Authorization: Bearer {}",
            "{{'authorization': b'Bearer {}'}}",
            "token={}&x=1",
            "opened {}, ready",
            "https://h:1/episodes/{}/server/mcp?x",
            '{{"token": "{}"}}',
            "x{}",
        ]
    ),
)
def test_a_token_is_hidden_wherever_it_stands(token: str, template: str) -> None:
    assert token not in redact(template.format(token))


@pytest.mark.parametrize(
    "text",
    ["/episodes/short/mcp", "bearer abc", "Bearer  abc", "password: hunter2", "api_key=abc"],
)
def test_short_secrets_are_hidden_by_where_they_stand(text: str) -> None:
    hidden = redact(text)
    assert "***" in hidden
    assert not any(word in hidden for word in ("short", "abc", "hunter2"))


@pytest.mark.parametrize(
    "text",
    [
        "/envs/flights/mcp",
        "/agent/mcp",
        "/control/mcp",
        "bundle flights@1.0.0#t1 loaded",
        "sha256:" + "ab" * 32,
        "12 sessions ended",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redact(text) == text


def test_a_line_is_one_json_object_with_its_extra_fields(stream: io.StringIO) -> None:
    logging.getLogger("astra_mcp.host").info("opened %d", 3, extra={"episodes": 7})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["episodes"]) == ("info", "opened 3", 7)
    assert line["time"].endswith("Z")


def test_extra_fields_and_arguments_are_redacted_too(stream: io.StringIO) -> None:
    token = secrets.token_urlsafe(32)
    logger = logging.getLogger("astra_mcp.host")
    logger.info("served %s", f"/episodes/{token}/mcp", extra={"url": token, "odd": object()})
    assert token not in stream.getvalue()
    assert json.loads(stream.getvalue())["odd"] == "object"


def test_fields_named_like_secrets_are_hidden_whole_and_the_line_stays_json(
    stream: io.StringIO,
) -> None:
    logging.getLogger("x").info("x", extra={"control_token": "short", "max_tokens": 12, "n": 1})
    line = json.loads(stream.getvalue())
    assert (line["control_token"], line["max_tokens"], line["n"]) == ("***", "***", 1)


def test_an_unforeseen_error_shows_where_it_happened_and_not_what_it_says(
    stream: io.StringIO,
) -> None:
    try:
        raise ValueError("the sealed answer is 42")
    except ValueError:
        logging.getLogger("x").exception("a service failed")
    line = json.loads(stream.getvalue())
    assert line["error"] == "ValueError"
    assert "sealed" not in stream.getvalue()
    assert line["frames"][0].startswith("test_transport_logs.py:")


def test_our_own_errors_keep_their_words(stream: io.StringIO) -> None:
    try:
        raise BundleError("No bundle there.", "Name another.")
    except BundleError:
        logging.getLogger("x").exception("load")
    assert json.loads(stream.getvalue())["error"] == "BundleError: No bundle there. Name another."


def test_the_servers_access_log_is_off_and_its_chatter_too(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.access").info("GET /episodes/x/mcp")
    logging.getLogger("uvicorn.error").info("Started")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == [
        "Invalid HTTP request received."
    ]
