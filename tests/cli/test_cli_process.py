"""What only a real process shows: imports, exit codes, signals, pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_inputs import Files, write_files

COMMANDS = ["", "demo", "fit", "evaluate", "diagnose", "inspect", "data", "data list", "data get"]
COMMANDS += ["store", "store build", "store check", "store info"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def start(*args: object) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "aggbuffer", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_help_is_there_for_every_command_and_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from aggbuffer.cli import app\n"
        f"for command in {COMMANDS!r}:\n"
        "    result = CliRunner().invoke(app, [*command.split(), '--help'])\n"
        "    assert result.exit_code == 0, command\n"
        "    assert 'aggbuffer demo' in result.stdout if not command else True\n"
        "    assert 'Example: aggbuffer' in result.stdout or command in ('', 'data', 'store'), command\n"
        "assert not {'torch', 'torch_geometric', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_threads_wait_without_spinning_unless_the_user_wants_them_to() -> None:
    code = (
        "import os, sys\n"
        "from aggbuffer.cli import main\n"
        "sys.argv = ['aggbuffer', '--version']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)\n"
    )
    for given, policy in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        env |= {} if given is None else {"OMP_WAIT_POLICY": given}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == f"{policy} False"


def test_the_console_script_and_the_module_say_the_version() -> None:
    script = Path(sys.executable).with_name("aggbuffer")
    for command in ([str(script)], [sys.executable, "-m", "aggbuffer"]):
        result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
        assert result.stdout.startswith("aggbuffer ")


def test_exit_code_and_line_of_a_failure(files: Files) -> None:
    process = start("inspect", files.graph)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert "Traceback" not in stderr


def interrupt(files: Files, *options: str) -> tuple[int, str]:
    """Start a fit without end, press Ctrl-C once it is under way, and return its exit code and last words."""
    process = start("fit", *files.inputs, "--out", files.folder / "x.safetensors", "--patience", 10**9,
                    "--max-epochs", 10**9, *options)  # fmt: skip
    assert process.stderr is not None
    try:
        assert "epoch 1/" in next(line for line in process.stderr if line.startswith("epoch"))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, stderr


def test_ctrl_c_without_a_checkpoint_keeps_nothing_and_says_so(files: Files) -> None:
    code, told = interrupt(files)
    assert code == 130
    assert "nothing was kept" in told
    assert "Traceback" not in told
    assert not (files.folder / "x.safetensors").exists()


def test_ctrl_c_with_a_checkpoint_says_how_to_go_on_and_that_works(files: Files) -> None:
    checkpoint = files.folder / "c.safetensors"
    code, told = interrupt(files, "--checkpoint", str(checkpoint))
    assert code == 130
    assert str(checkpoint) in told
    assert "to go on" in told
    _, again = interrupt_resumed(files, checkpoint)
    assert "going on after epoch" in again


def interrupt_resumed(files: Files, checkpoint: Path) -> tuple[int, str]:
    """The same run once more, stopped as soon as it says where it goes on from."""
    process = start("fit", *files.inputs, "--out", files.folder / "x.safetensors", "--patience", 10**9,
                    "--max-epochs", 10**9, "--checkpoint", checkpoint)  # fmt: skip
    assert process.stderr is not None
    try:
        told = next(line for line in process.stderr if "going on" in line)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, told


def test_a_closed_pipe_is_no_error(files: Files) -> None:
    process = start("data", "list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) >= 0  # it ended by itself
