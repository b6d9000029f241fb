"""The command line: finds the command, runs it, and turns errors into exit codes. Design section 12."""

import argparse
import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import dreamddp

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 130  # as shells report it


@dataclass(frozen=True)
class Command:
    """One subcommand. Its module is imported only when the command is used: some of them import torch."""

    module: str
    summary: str


COMMANDS = {
    "plan": Command("dreamddp.commands.plan", "make a plan for a profile"),
    "simulate": Command("dreamddp.commands.simulate", "time a plan"),
    "compare": Command("dreamddp.commands.compare", "all planners side by side, with the limit"),
    "import-profile": Command("dreamddp.commands.import_profile", "read the published layer times"),
    "profile": Command("dreamddp.commands.profile", "measure a model here"),
    "train": Command("dreamddp.commands.train", "train for real, over an emulated or the real link"),
    "report": Command("dreamddp.commands.report", "a run's record as a page"),
    "sensitivity": Command("dreamddp.commands.sensitivity", "how fast the gradients of layers turn"),
}


class _OutputLost(Exception):
    """Standard output takes nothing more: its reader has left, or its device is full."""


@contextmanager
def _writing_output() -> Iterator[None]:
    """Raises _OutputLost where what the block prints cannot be written. OSErrors elsewhere are of files."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        raise _OutputLost(error.strerror or str(error)) from error
    except SystemExit as error:
        if not error.code:  # --help and --version end so
            raise
        # rich exits by itself where the reader has left.
        raise _OutputLost(os.strerror(errno.EPIPE)) from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        # argparse's own hides that the help could not be written.
        (file or sys.stderr).write(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0: done, 1: the run failed, 2: bad input, 130: interrupted; --help exits as
    argparse does."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # what Python makes of a closed descriptor
        return _fail("standard output is closed", FAILED)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except _OutputLost as error:
        # What is still buffered must not be written once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"standard output: {error}", FAILED)
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is not installed; this command needs it", FAILED)
    except OSError as error:
        return _fail(_describe(error), BAD_INPUT)
    except ValueError as error:
        return _fail(str(error), BAD_INPUT)
    except RuntimeError as error:  # SyncError is one
        return _fail(str(error) or type(error).__name__, FAILED)


def _run(arguments: list[str]) -> int:
    parser = _top_parser()
    with _writing_output():  # --help and --version print
        name = parser.parse_args(arguments[:1]).command
    command = COMMANDS[name]
    module = importlib.import_module(command.module)
    parser = _Parser(prog=f"dreamddp {name}", description=command.summary, allow_abbrev=False)
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, nothing else"
    )
    module.add_arguments(parser)
    with _writing_output():
        args = parser.parse_args(_with_negative_values(arguments[1:]))
    run: Callable[[argparse.Namespace], Mapping[str, object] | None] = module.run
    result = run(args)
    if result is None:  # one of several ranks, of which another speaks
        return DONE
    with _writing_output():
        if args.json:
            print(json.dumps(result, indent=2, allow_nan=False))
        else:
            module.print_table(result)
    return DONE


def _with_negative_values(arguments: list[str]) -> list[str]:
    """Values such as -1MB/s, which argparse would take for flags, joined to their own: their reader then says
    what is allowed."""
    joined: list[str] = []
    for argument in arguments:
        follows_flag = bool(joined) and re.fullmatch(r"--[a-z-]+", joined[-1]) is not None
        if follows_flag and re.match(r"-\.?\d", argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    parser = _Parser(
        prog="dreamddp",
        description="Data-parallel training over slow links by partial local SGD.",
        epilog=f"commands:\n{listing}\n\n`dreamddp COMMAND --help` describes a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="dreamddp COMMAND ...",
    )
    parser.add_argument("--version", action="version", version=f"dreamddp {dreamddp.__version__}")
    parser.add_argument("command", choices=tuple(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def _describe(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _fail(message: str, status: int) -> int:
    one_line = " ".join(message.split())
    print(f"dreamddp: {one_line}", file=sys.stderr)
    return status
