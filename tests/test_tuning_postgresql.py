"""The real zoo on a real PostgreSQL server, set up as docs/tuning.md says: Debian's package, a user and a database."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tuning_workers import check_counts, study_with_one_worker_killed

pytestmark = pytest.mark.slow


def server_programs() -> Path:
    """The folder with initdb, pg_ctl, createuser and createdb."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    found = [path for path in folders if (path / "initdb").is_file()]
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    return found[-1] if found else Path(str(on_path)).parent


@pytest.fixture
def database() -> Iterator[str]:
    """URL of a new database on a new server."""
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL: pip install 'sb3_camp[postgresql]'")
    programs = server_programs()
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder, socket.socket() as free:
        owner: dict[str, str] = {}
        if os.getuid() == 0:  # as which the server refuses to run
            try:
                pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("no user postgres to run the server as: apt-get install postgresql")
            shutil.chown(folder, "postgres", "postgres")
            owner = {"user": "postgres", "group": "postgres"}
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *arguments]
            log = Path(folder, "output.txt")
            with log.open("ab") as output:  # a pipe would be kept open by the server
                status = subprocess.call(command, cwd=folder, stdout=output, stderr=output, timeout=120, **owner)  # type: ignore[call-overload]
            assert status == 0, log.read_text()

        data, options = f"{folder}/data", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("initdb", "-D", data, "-U", "postgres", "--auth-local", "trust", "--auth-host", "scram-sha-256")
        run("pg_ctl", "-D", data, "-o", options, "-l", f"{folder}/server.txt", "-w", "start")
        try:
            admin = ("-h", folder, "-p", port, "-U", "postgres")
            run("psql", *admin, "-c", "CREATE USER tuner PASSWORD 'secret'")
            run("createdb", *admin, "--owner", "tuner", "tuning")
            yield f"postgresql+psycopg://tuner:secret@127.0.0.1:{port}/tuning"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def test_a_study_on_a_server_ends_with_the_right_count_though_a_worker_was_killed(tmp_path, database):
    study, victim = study_with_one_worker_killed(tmp_path, 8, database)
    check_counts(study, 8, victim)
