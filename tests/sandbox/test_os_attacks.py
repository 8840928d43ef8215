"""With the language layer escaped, the operating system still contains the tool."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import AsyncIterator

import pytest

from astra_mcp.errors import HOST_CODES
from astra_mcp.sandbox import Reply, Sandbox, Template, Worker
from tests.sandbox.helpers import code_of, load_unguarded, running
from tests.sandbox.os_attacks import MUST_NOT_EXIST, REFUSED, RUNNER, SURVIVED

BY_THE_KERNEL = {errno.EPERM, errno.EACCES}
by_number = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="payloads use x86_64 system call numbers"
)


@pytest.fixture(scope="module")
async def template(sandbox: Sandbox) -> Template:
    os.environ["ASTRA_TEST_SECRET"] = "a secret of the host"
    return await load_unguarded(sandbox, RUNNER, {"run": "read"})


@pytest.fixture(scope="module")
async def sibling(template: Template) -> AsyncIterator[Worker]:
    """A worker of the same template that no attack may touch."""
    worker = await template.worker({})
    yield worker
    assert (await worker.call("run", {"payload": "VALUE = 7"}, b"")).result["value"] == 7


async def _attack(template: Template, sibling: Worker, payload: str) -> Reply:
    names = {"{host}": os.getpid(), "{sibling}": sibling.pid}
    names["{parent}"] = template._forker.process.pid
    for name, pid in names.items():
        payload = payload.replace(name, str(pid))
    worker = await template.worker({})
    reply = await worker.call("run", {"payload": payload}, b"")
    worker.kill()
    assert not any(map(os.path.lexists, MUST_NOT_EXIST))
    assert all(running(pid) for pid in names.values())
    return reply


@by_number
@pytest.mark.parametrize("name", REFUSED)
async def test_the_kernel_refuses(template: Template, sibling: Worker, name: str) -> None:
    reply = await _attack(template, sibling, REFUSED[name])
    assert reply.failure is None
    assert reply.result["loot"] is None
    assert reply.result["refused"] in BY_THE_KERNEL


@by_number
@pytest.mark.parametrize("name", SURVIVED)
async def test_the_host_survives(template: Template, sibling: Worker, name: str) -> None:
    reply = await _attack(template, sibling, SURVIVED[name])
    if reply.failure is None:
        assert reply.result["loot"] is None
        assert not {"HOME", "ASTRA_TEST_SECRET"} & set(reply.result["value"] or [])
    else:
        assert code_of(reply) in HOST_CODES


async def test_a_payload_that_is_no_attack_brings_loot(template: Template, sibling: Worker) -> None:
    reply = await _attack(template, sibling, "LOOT = 'x'")
    assert reply.result == {"loot": "x", "value": None, "refused": None}
