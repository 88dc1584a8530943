"""
``python -m sb3_camp.report``: one HTML file on a certified agent, for whoever has to sign.

It needs no network, no scripts and no other file, and says in plain words what was tested, what is certified, what attacks
have found, what is assumed and how to make it all again.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_camp.attack_runs.agent_results import add_result_paths, find_results, print_verdict
from sb3_camp.certification.source_files import changed_logs
from sb3_camp.command_line import exit_status, invocation
from sb3_camp.errors import InputError
from sb3_camp.files import write_file
from sb3_camp.plugins import load_plugins
from sb3_camp.reporting.page import report_page
from sb3_camp.text import printable

_ENDINGS = (".html", ".htm")


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command line
    """
    parser = argparse.ArgumentParser(
        prog="report",
        usage=f"{invocation('report')} PATH [PATH ...] [-o FILE]",
        description="Write one HTML file on a certified agent, for whoever has to sign: what was tested, what is certified, "
        "what attacks found, what is assumed, and how to make it all again. Exit status 3 tells that attacked episodes "
        "contradict the certificate.",
    )
    add_result_paths(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("report.html"), help="the report (default: %(default)s)"
    )
    return parser


def _report(args: argparse.Namespace) -> None:
    if args.output.suffix.lower() not in _ENDINGS:
        raise InputError(f"{args.output}: the report must be a {' or '.join(_ENDINGS)} file")
    results = find_results(args.paths)
    page = report_page(results)
    write_file(args.output, lambda file: file.write(page.encode()))
    for log in changed_logs(results.certificate, results.file):
        text = f"{results.file}: older than {log}, which has changed since: certify again"
        print(f"report: warning: {printable(text)}", file=sys.stderr)
    for text in results.left_out:
        print(f"Left out: {printable(text)}")
    print(f"Written: {printable(str(args.output))}")
    print_verdict(results)


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 3 if attacks contradict the certificate, 130 if interrupted
    """
    load_plugins()
    args = command_parser().parse_args(argv)
    return exit_status("report", lambda: _report(args))


if __name__ == "__main__":
    sys.exit(main())
