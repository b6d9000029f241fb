"""`dreamddp report`: a run's record as a page."""

import argparse
from pathlib import Path

from dreamddp.commands.output_file import check_output
from dreamddp.report import write_report
from dreamddp.training.record import RECORD_NAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder that a run has written")
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="default %(default)s")


def run(args: argparse.Namespace) -> dict[str, object]:
    check_output("-o", args.output, Path(args.run) / RECORD_NAME)
    write_report(Path(args.run), Path(args.output))
    return {"run": args.run, "output": args.output}


def print_table(result: dict[str, object]) -> None:
    print(f"{result['output']}: report of {result['run']}")
