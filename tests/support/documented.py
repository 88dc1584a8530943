"""What the documentation prints: its code blocks, and the commands in them."""

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "zoo_scripts").rglob("*.md")]
    if "_build" not in page.parts
)
_BLOCK = re.compile(r"^( *)```(\{code-cell\} )?(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(?:python3? (?:-m )?(?=sb3_camp|rl_zoo3|zoo_scripts/|benchmarks/)|(?:^|[ !])sb3-camp (?=\w)).*")


def blocks(page: Path, language: str) -> list[str]:
    """
    :param page: A page of the documentation
    :param language: ``sh``, ``python``, ...; a cell of a notebook is ``ipython3``
    :return: the text of its blocks of code in this language
    """
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, _, name, text in found if name == language]


def commands(page: Path) -> list[list[str]]:
    """
    :param page: A page of the documentation
    :return: the words of each command of this package, of the zoo, of ``zoo_scripts`` and ``benchmarks`` in its blocks, in
        their order: ``python -m MODULE ...`` as ``MODULE ...``; what the shell does with the output is left out
    """
    texts = [text for language in ("sh", "ipython3", "python") for text in blocks(page, language)]
    lines = [line for text in texts for line in re.sub(r"\\\n\s*", "", text).splitlines()]
    return [list(_words(match[0])) for line in lines if (match := _COMMAND.search(line))]


def _words(command: str) -> Iterator[str]:
    lexer = shlex.shlex(re.sub(r"\$\w+", "0", command), posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    words = iter(lexer)
    first = next(words)
    if first.startswith("python"):
        first = next(words)
        yield next(words) if first == "-m" else first
    else:
        yield f"sb3_camp.{next(words)}"
    for word in words:
        if set(word) <= set(";|&<>"):
            return
        if word != "...":
            yield word


class _Parsed(BaseException):
    pass


def parse(command: list[str]) -> argparse.Namespace:
    """
    Let the program of a command parse its arguments, and stop it there.

    :param command: As :func:`commands` gives it
    :return: what it has read
    :raises SystemExit: if it does not take them
    """
    parse_args, parse_known_args = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args
    inside = False

    def stop_after_all(parser: argparse.ArgumentParser, *args: object, **kwargs: object) -> argparse.Namespace:
        nonlocal inside
        inside = True
        raise _Parsed(parse_args(parser, *args, **kwargs))  # type: ignore[arg-type]

    def stop_after_known(parser: argparse.ArgumentParser, *args: object, **kwargs: object) -> object:
        found = parse_known_args(parser, *args, **kwargs)  # type: ignore[call-overload]
        if inside:
            return found
        raise _Parsed(found[0])

    program, *arguments = command
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", stop_after_all),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop_after_known),
        mock.patch.object(sys, "argv", [program, *arguments]),
        mock.patch.object(sys, "path", [str((ROOT / program).parent), *sys.path]),
    ):
        try:
            if program.endswith(".py"):
                runpy.run_path(str(ROOT / program), run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__", alter_sys=False)
        except _Parsed as parsed:
            (namespace,) = parsed.args
            return namespace
    raise AssertionError(f"{program} parses no arguments")
