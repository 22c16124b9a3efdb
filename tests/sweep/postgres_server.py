"""A PostgreSQL server of the tests' own, on a loopback port, with a password."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

PASSWORD = "s3cr3t&wörd"
QUOTED = "s3cr3t%26w%C3%B6rd"


@dataclass
class Server:
    """A running server.

    Attributes:
        port: On 127.0.0.1.
    """

    port: int
    made: int = 0

    def new_database(self) -> str:
        """The address of an empty database."""
        self.made += 1
        name = f"sweep{self.made}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def address(self, database: str) -> str:
        return f"postgresql://searcher:{QUOTED}@127.0.0.1:{self.port}/{database}"


def _binaries() -> Path:
    found = shutil.which("pg_ctl")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name.split(".")[0]))
    if found is None and not folders:
        pytest.skip("needs the PostgreSQL server; install the package postgresql")
    return Path(found).parent if found else folders[-1]


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server, and stop and remove it at the end; skips where PostgreSQL is not installed."""
    binaries = _binaries()
    # The server refuses to run as root, and its user must be able to reach the folder.
    folder = Path(tempfile.mkdtemp(prefix="aggbuffer-pg-"))
    account: dict[str, str | int] = {}
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("needs a user 'postgres' to run the server as, when run by root")
        account = {"user": owner.pw_uid, "group": owner.pw_gid}
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if account:
        os.chown(secret, int(account["user"]), int(account["group"]))
    data = folder / "data"
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "searcher", "-A", "scram-sha-256", f"--pwfile={secret}",
             "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True, capture_output=True, cwd=folder, extra_groups=[] if account else None, **account,
        )  # fmt: skip
        port = _free_port()
        settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data, *options],
                stdout=log, stderr=log, cwd=folder, extra_groups=[] if account else None, **account,
            )  # fmt: skip
        try:
            server = Server(port)
            _wait(server, process, folder / "log")
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # the fast way down
            process.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(server.address("postgres")):
            return
        if process.poll() is not None:
            pytest.fail(f"the server ended: {log.read_text()}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
    pytest.fail("the server did not start within a minute")
