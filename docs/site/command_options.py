"""The directive ``command-options``: all arguments of a command, from the parser that the command itself uses."""

import argparse
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import sb3_camp.zoo


def parser_of(command: str) -> argparse.ArgumentParser:
    """
    :param command: Name of a command, with that of its sub-command behind it if it has some: ``plot attack``
    :return: its parser
    """
    name, *rest = command.split()
    parser = import_module(f"sb3_camp.{name}").command_parser()
    for sub in rest:
        (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = choices[sub]
    return parser


def restructured_text(command: str) -> Iterator[str]:
    """
    :param command: As for :func:`parser_of`
    :return: lines of reStructuredText: the description, and each argument with what it means
    """
    parser = parser_of(command)
    usage = textwrap.wrap(parser.format_usage().removeprefix("usage: "), 76, subsequent_indent="    ", break_on_hyphens=False)
    yield from (_escaped(parser.description or ""), "", "::", "", *(f"    {line}" for line in usage), "")
    yield from (f".. program:: {command}", "")
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        if not actions:
            continue
        yield from (f"**{(group.title or 'arguments').capitalize()}**", "")
        for action in actions:
            yield from (f".. option:: {_names(action)}", "", f"   {_meaning(parser, action)}", "")


def _names(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return value
    return ", ".join(f"{name} {value}".strip() for name in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    return f"{metavar} [{metavar} ...]" if action.nargs in ("+", argparse.REMAINDER) else str(metavar)


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    text = text[:1].upper() + text[1:]
    return _escaped(text + (" (required)" if action.required and action.option_strings else ""))


def _escaped(text: str) -> str:
    for character in "\\*`_|@":  # a number@radius is no address
        text = text.replace(character, f"\\{character}")
    return text


class CommandOptions(SphinxDirective):
    """``.. command-options:: plot attack``"""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(restructured_text(self.arguments[0])))


def setup(app: Sphinx) -> dict[str, Any]:
    sb3_camp.zoo.register()
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
