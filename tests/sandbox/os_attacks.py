"""Attacks on the operating system's layers, run as plain Python inside a worker; data for tests.

They simulate a complete escape from the language layer: the template is loaded unguarded and each
payload is exec'd. `REFUSED` holds what must meet a refusal by the kernel, `SURVIVED` what must end
in a failure of its own call and nothing else. Both must bring no LOOT and leave no file of
`MUST_NOT_EXIST`. `{host}` is the host's process id, `{sibling}` that of a worker of the same
template, `{parent}` that of the template.
"""

from __future__ import annotations

from typing import Final

#: The unguarded tool that runs a payload: what it leaves in LOOT comes back, or what refused it.
RUNNER: Final = """
def run(state, *, payload):
    names = {"__name__": "payload", "state": state}
    refused = None
    try:
        exec(payload, names)
    except OSError as error:
        refused = error.errno
    return {"loot": names.get("LOOT"), "value": names.get("VALUE"), "refused": refused}
"""

MUST_NOT_EXIST: Final = ("/tmp/astra-pwned", "/dev/shm/astra-pwned", "/astra-pwned")

#: Makes a raw system call and fails unless it was refused.
_SYSCALL: Final = (
    "import ctypes\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "def syscall(*args):\n"
    "    result = libc.syscall(*args)\n"
    "    if result < 0:\n"
    "        raise OSError(ctypes.get_errno(), 'refused')\n"
    "    return result\n"
)

#: Name -> payload. Numbers are x86_64 system calls; on another machine they hit other calls.
REFUSED: Final[dict[str, str]] = {
    # ---- network
    "socket": "import socket\nsocket.socket()\nLOOT = 1",
    "socket by number": _SYSCALL + "LOOT = syscall(41, 2, 1, 0)",
    "socketpair": _SYSCALL + "LOOT = syscall(53, 1, 1, 0, (ctypes.c_int * 2)())",
    # ---- files
    "read a file": "LOOT = open('/etc/passwd').read()",
    "read own environment": (
        "import os\nLOOT = os.environ.get('ASTRA_TEST_SECRET')\n"
        "LOOT = LOOT or open('/proc/self/environ').read()"
    ),
    "write a file": "open('/tmp/astra-pwned', 'w').write('x')\nLOOT = 1",
    "write relative": "open('astra-pwned', 'w').write('x')\nLOOT = 1",
    "write /dev/shm": "open('/dev/shm/astra-pwned', 'w').write('x')\nLOOT = 1",
    "list a directory": "import os\nLOOT = os.listdir('/')",
    "memfd": "import os\nLOOT = os.memfd_create('x')",
    "map a file": _SYSCALL + "import mmap\nLOOT = len(mmap.mmap(3, 4096))",
    "unlink": "import os\nos.unlink('/tmp/astra-keep')\nLOOT = 1",
    "chroot": "import os\nos.chroot('/')\nLOOT = 1",
    # ---- programs, processes, threads
    "execve": "import os\nos.execv('/bin/sh', ['sh', '-c', 'id'])",
    "posix_spawn": "import os\nLOOT = os.posix_spawn('/bin/true', ['true'], {})",
    "fork": "import os\nif os.fork() == 0:\n    os._exit(0)\nLOOT = 1",
    "vfork": _SYSCALL + "LOOT = syscall(58)",
    "clone3": _SYSCALL + "LOOT = syscall(435, bytes(88), 88)",
    "thread by clone": _SYSCALL + "LOOT = syscall(56, 0x3d0f00, 0, 0, 0, 0)",
    "fork bomb": "import os\nfor _ in range(1000):\n    os.fork()\nLOOT = 1",
    # ---- other processes
    "kill the host": "import os\nos.kill({host}, 9)\nLOOT = 1",
    "kill the template": "import os\nos.kill({parent}, 9)\nLOOT = 1",
    "kill a sibling": "import os\nos.kill({sibling}, 9)\nLOOT = 1",
    "kill everybody": "import os\nos.kill(-1, 9)\nLOOT = 1",
    "kill the group": "import os\nos.kill(0, 9)\nLOOT = 1",
    "pidfd": "import os\nLOOT = os.pidfd_open({host})",
    "ptrace": _SYSCALL + "LOOT = syscall(101, 16, {host}, 0, 0) + 1",
    "ptrace a sibling": _SYSCALL + "LOOT = syscall(101, 16, {sibling}, 0, 0) + 1",
    "read the host's memory": (
        _SYSCALL + "b = ctypes.create_string_buffer(64)\n"
        "v = (ctypes.c_ulong * 2)(ctypes.addressof(b), 64)\n"
        "LOOT = syscall(310, {host}, v, 1, v, 1, 0)"
    ),
    "read a sibling's memory": (
        _SYSCALL + "b = ctypes.create_string_buffer(64)\n"
        "v = (ctypes.c_ulong * 2)(ctypes.addressof(b), 64)\n"
        "LOOT = syscall(310, {sibling}, v, 1, v, 1, 0)"
    ),
    "open the host's memory": "LOOT = open('/proc/{host}/mem', 'rb').fileno()",
    "the host's environment": "LOOT = open('/proc/{host}/environ', 'rb').read()",
    "the host's limits": (
        "import resource\nresource.prlimit({host}, resource.RLIMIT_CPU, (1, 1))\nLOOT = 1"
    ),
    "the host's priority": "import os\nos.setpriority(os.PRIO_PROCESS, {host}, 19)\nLOOT = 1",
    # ---- its own cage
    "raise a limit": _SYSCALL
    + "LOOT = syscall(160, 9, (ctypes.c_ulong * 2)(1 << 40, 1 << 40)) + 1",
    "second seccomp": _SYSCALL + "LOOT = syscall(317, 0, 0, 0) + 1",
    "outlive the parent": _SYSCALL + "LOOT = syscall(157, 1, 0, 0, 0, 0) + 1",
    "new user namespace": _SYSCALL + "LOOT = syscall(272, 0x10000000) + 1",
    "new session": "import os\nos.setsid()\nLOOT = 1",
    "new group": "import os\nos.setpgid(0, 0)\nLOOT = 1",
    "become root": "import os\nos.setuid(0)\nLOOT = 1",
    "mount": _SYSCALL + "LOOT = syscall(165, b'a', b'/', b'tmpfs', 0, 0) + 1",
    "keyring": _SYSCALL + "LOOT = syscall(248, b'user', b'a', b'b', 1, -3)",
    "io_uring": _SYSCALL + "LOOT = syscall(425, 8, bytes(120)) + 1",
    "bpf": _SYSCALL + "LOOT = syscall(321, 0, 0, 0) + 1",
    "userfaultfd": _SYSCALL + "LOOT = syscall(323, 0) + 1",
    "perf_event": _SYSCALL + "LOOT = syscall(298, bytes(120), 0, -1, -1, 0) + 1",
    "executable memory": (
        "import mmap\nmmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "LOOT = 1"
    ),
    "make memory executable": (
        _SYSCALL + "import mmap\nm = mmap.mmap(-1, 4096)\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\nLOOT = syscall(10, a, 4096, 7) + 1"
    ),
}

#: Name -> payload: exhaustion, crashes, and abuse of the line to the host.
SURVIVED: Final[dict[str, str]] = {
    # ---- resources
    "memory by list": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))",
    "memory at once": "x = bytearray(8 << 30)\nLOOT = 1",
    "memory by integer": "x = 1 << (8 * (8 << 30))\nLOOT = 1",
    "memory by string": "x = 'a' * (4 << 30)\nLOOT = 1",
    "recursion": "def f(n):\n    return f(n + 1)\nf(0)",
    "spin": "while True:\n    pass",
    "spin and swallow": (
        "while True:\n    try:\n        while True:\n            pass\n"
        "    except BaseException:\n        pass"
    ),
    "spin in C": "sum(range(10 ** 12))",
    "backtracking": "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
    "spin, time-out ignored": (
        "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGVTALRM, signal.SIG_IGN)\nwhile True:\n    pass"
    ),
    "spin, timers off": (
        "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, 0)\nwhile True:\n    pass"
    ),
    "deadlock": "import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()",
    "stop itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nLOOT = 1",
    "segfault": "import ctypes\nctypes.string_at(8)",
    "exit": "import os\nos._exit(0)",
    "abort": "import os\nos.abort()",
    # ---- the line to the host
    "close the line": (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.close(fd)\n"
        "    except OSError:\n        pass"
    ),
    "garbage on the line": (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'\\xff' * 100000)\n"
        "    except OSError:\n        pass"
    ),
    "forged reply without tag": (
        'import os, struct\nbody = b\'{"r":{"loot":"forged"},"c":{}}\'\n'
        "for fd in range(3, 64):\n    try:\n"
        "        os.write(fd, struct.pack('<I8s', len(body), bytes(8)) + body)\n"
        "    except OSError:\n        pass"
    ),
    "endless frame": (
        "import os, struct\nfor fd in range(3, 64):\n    try:\n"
        "        os.write(fd, struct.pack('<I8s', 4294967295, bytes(8)))\n"
        "        while True:\n            os.write(fd, bytes(65536))\n"
        "    except OSError:\n        pass"
    ),
    "slow frame": (
        "import os, struct\nfor fd in range(3, 64):\n    try:\n"
        "        os.write(fd, b'\\x10')\n    except OSError:\n        pass\nwhile True:\n    pass"
    ),
    "huge result": "VALUE = 'x' * (30 << 20)",
    "deep result": "x = []\nfor _ in range(100000):\n    x = [x]\nVALUE = x",
    "endless text of an error": (
        "class ToolError(Exception):\n    code = 'x'\n    def __str__(self):\n"
        "        while True:\n            pass\nraise ToolError"
    ),
    "flood of output": "for _ in range(100000):\n    print('x' * 100)",
    # ---- refused in other words than an errno
    "inherited sockets": (
        "import socket\n"
        "for fd in range(3, 64):\n"
        "    try:\n"
        "        LOOT = repr(socket.socket(fileno=fd).getpeername())\n"
        "    except OSError:\n"
        "        pass"
    ),
    "pass a descriptor": (
        "import socket\n"
        "for fd in range(3, 64):\n"
        "    try:\n"
        "        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)\n"
        "        LOOT = socket.send_fds(line, [b'F'], [0])\n"
        "    except OSError:\n"
        "        pass"
    ),
    "environment in memory": (
        "import os\nVALUE = sorted(os.environ)\n"
        "LOOT = os.environ.get('ASTRA_TEST_SECRET') or os.environ.get('HOME')"
    ),
    "system": "import os\nif os.system('true') == 0:\n    LOOT = 1",
    "thread": "import _thread\n_thread.start_new_thread(lambda: None, ())\nLOOT = 1",
    "32-bit system call door": _SYSCALL + "LOOT = syscall(0x40000000 + 41, 2, 1, 0)",
}
