"""
``sb3-camp card``: a certified agent as a folder that a model hub understands, and its upload if you ask for it.

The folder holds README.md (the model card), the agent, its certificate and, for a run of the zoo, its hyper-parameters.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_camp.attack_runs.agent_results import add_result_paths, find_results, print_verdict
from sb3_camp.certification.source_files import changed_logs
from sb3_camp.command_line import exit_status, invocation
from sb3_camp.errors import InputError
from sb3_camp.plugins import load_plugins
from sb3_camp.reporting.hub_folder import write_hub_folder
from sb3_camp.reporting.upload import check_repository, upload
from sb3_camp.text import printable


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command line
    """
    parser = argparse.ArgumentParser(
        prog="card",
        usage=f"{invocation('card')} PATH [PATH ...] -o FOLDER [--push USER/NAME]",
        description="Write a folder for a model hub on a certified agent: a model card with the certificate's table, its "
        "picture and metadata, the agent, and its certificate. Exit status 3 tells that attacked episodes contradict the "
        "certificate; then nothing is written.",
    )
    add_result_paths(parser)
    parser.add_argument("-o", "--output", metavar="FOLDER", type=Path, required=True, help="the folder, a new or an empty one")
    parser.add_argument("--model", metavar="FILE", type=Path, help="the agent, if it does not lie where the certificate says")
    parser.add_argument(
        "--push",
        metavar="USER/NAME",
        help="upload the folder to this repository of the Hugging Face hub, which is made if needed (log in with "
        "`hf auth login` before)",
    )
    parser.add_argument("--private", action="store_true", help="make the repository a private one")
    return parser


def _card(args: argparse.Namespace) -> None:
    if args.private and args.push is None:
        raise InputError("--private is for --push")
    if args.push is not None:
        check_repository(args.push)
    results = find_results(args.paths)
    changed = [str(log) for log in changed_logs(results.certificate, results.file)]
    if changed:
        raise InputError(f"{results.file}: older than {', '.join(changed)}, changed since: certify again")
    print_verdict(results)  # before anything is written: nobody shall publish what is contradicted
    files = write_hub_folder(results, args.output, args.model)
    for text in results.left_out:
        print(f"Left out: {printable(text)}")
    print(f"Written: {printable(', '.join(map(str, files)))}")
    if args.push is not None:
        print(f"Uploaded: {printable(upload(args.output, files, args.push, private=args.private))}")


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used or an upload that failed, 3 if attacks contradict the certificate,
        130 if interrupted
    """
    load_plugins()
    args = command_parser().parse_args(argv)
    return exit_status("card", lambda: _card(args))


if __name__ == "__main__":
    sys.exit(main())
