"""Reading the YAML files that the zoo dumps as plain data: nothing that a file names is imported, built or executed."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sb3_camp.errors import InputError

# PyYAML lets through whatever int(), float(), datetime() and dict() say to the texts in the file
_CONVERSION_ERRORS = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError)
_NAME = "tag:yaml.org,2002:python/name:"


@dataclass(frozen=True)
class PythonName:
    """
    A Python object that a file refers to by name (``activation_fn: !!python/name:torch.nn.modules.activation.Tanh``).

    It is never resolved, so all that is known of it is its name.

    :param name: the name, with its module
    """

    name: str


class ZooLoader(yaml.SafeLoader):
    """
    A YAML loader for the files that the zoo dumps: plain data, ``OrderedDict``, ``tuple`` and names, nothing else.

    The zoo's own loader builds any Python object that a file names, so a run folder from elsewhere could run any code.
    """

    def construct_ordered_dict(self, node: yaml.Node) -> dict:
        # The zoo's dump: a call of OrderedDict with one argument, the list of its [key, value] pairs
        arguments = self.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else []
        try:
            (pairs,) = arguments
            return dict(pairs)
        except (TypeError, ValueError):
            raise InputError(f"{self.name}, line {node.start_mark.line + 1}: not a list of key and value pairs") from None

    def construct_tuple(self, node: yaml.Node) -> tuple:
        return tuple(self.construct_sequence(node, deep=True))

    def construct_name(self, suffix: str, node: yaml.Node) -> PythonName:
        return PythonName(suffix)

    def refuse(self, node: yaml.Node) -> None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise InputError(
            f"{self.name}, line {node.start_mark.line + 1}: the tag {tag} asks for more than plain data, it was not executed"
        )


ZooLoader.add_constructor("tag:yaml.org,2002:python/object/apply:collections.OrderedDict", ZooLoader.construct_ordered_dict)
ZooLoader.add_constructor("tag:yaml.org,2002:python/tuple", ZooLoader.construct_tuple)
ZooLoader.add_multi_constructor(_NAME, ZooLoader.construct_name)
ZooLoader.add_constructor(None, ZooLoader.refuse)


def read_zoo_yaml(path: Path) -> dict[str, Any]:
    """
    Read ``config.yml`` or ``args.yml`` of a run folder without executing anything.

    :param path: the file
    :return: its mapping, with a :class:`PythonName` for each object that it names
    :raises InputError: if the file cannot be read, is not a mapping or has a tag that asks for an object to be built
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, Loader=ZooLoader)
    except InputError:
        raise
    except (OSError, UnicodeError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from None
    except _CONVERSION_ERRORS as error:
        raise InputError(f"{path}: a text in it does not fit its tag: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a mapping of names to values")
    return content


def named_in(value: Any) -> PythonName | None:
    """
    :param value: what a YAML file holds
    :return: a Python object that is named anywhere in it, None if there is none
    """
    todo, seen = [value], set()  # a file may hold a list that contains itself, or the same list very often
    while todo:
        part = todo.pop()
        if isinstance(part, PythonName):
            return part
        if isinstance(part, dict | list | tuple | set) and id(part) not in seen:
            seen.add(id(part))
            todo += [*part, *part.values()] if isinstance(part, dict) else part
    return None


def keywords(text: str) -> dict[str, Any] | None:
    """
    :param text: a setting that the zoo would evaluate, as ``"dict(norm_obs=False)"`` or ``"{'norm_obs': False}"``
    :return: its value, None for anything but literals
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            return {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
