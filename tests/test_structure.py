"""The structure of the package: who imports whom, how long files are, and that each rule stands in one place."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sb3_camp

ROOT = Path(sb3_camp.__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "sb3_camp").rglob("*.py"))
}
COMMANDS = {
    "sb3_camp.evaluate",
    "sb3_camp.certify",
    "sb3_camp.attack",
    "sb3_camp.plot",
    "sb3_camp.report",
    "sb3_camp.card",
    "sb3_camp.__main__",
}


def imported(tree: ast.AST) -> set[str]:
    """All modules of the package that a module imports, anywhere in it except for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in named}
    return {name for name in names if name in MODULES}


IMPORTS = {name: imported(ast.parse(path.read_text())) - {name} for name, path in MODULES.items()}


def test_no_module_imports_itself_by_way_of_others():
    try:
        list(TopologicalSorter(IMPORTS).static_order())
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' <- '.join(error.args[1])}")


def test_the_plugin_and_the_commands_are_on_top():
    for name, others in IMPORTS.items():
        below = not name.startswith("sb3_camp.zoo") and name not in COMMANDS
        if below:
            assert not any(other.startswith("sb3_camp.zoo") for other in others), f"{name} imports the plugin"
            assert not others & COMMANDS, f"{name} imports a command"


def test_nothing_below_imports_the_root_of_the_package():
    """Whose import registers the tasks; the version has a module of its own."""
    allowed = {"sb3_camp.zoo.registration", *COMMANDS}
    assert [name for name, others in IMPORTS.items() if "sb3_camp" in others and name not in allowed] == []


def test_a_folder_imports_from_those_above_it_in_the_list_for_contributors():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = re.findall(r"(\w+)/", page[page.index("    sb3_camp/\n") : page.index("A folder imports")])[1:]
    assert set(folders) == {path.parent.name for path in (ROOT / "sb3_camp").glob("*/__init__.py")}
    for name, others in IMPORTS.items():
        home = name.split(".")[1] if name != "sb3_camp" else ""
        if home in folders:
            above = folders[: folders.index(home) + 1]
            assert {other.split(".")[1] for other in others if other != "sb3_camp"} & set(folders) <= set(above), name


@pytest.mark.parametrize("room", ["certification", "runs", "files", "errors", "version", "command_line"])
def test_what_certify_needs_imports_neither_players_nor_attacks(room):
    upper = ("sb3_camp.evaluation", "sb3_camp.attack", "sb3_camp.tuning", "sb3_camp.camp_dqn", "sb3_camp.zoo")
    for name, others in IMPORTS.items():
        if name.startswith(f"sb3_camp.{room}"):
            assert not any(other.startswith(upper) for other in others), name


def test_no_file_is_longer_than_400_lines():
    folders = ("sb3_camp", "zoo_scripts", "benchmarks", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)): n for path in files if (n := len(path.read_text().splitlines())) > 400} == {}


def test_no_test_imports_another():
    for path in (ROOT / "tests").rglob("test_*.py"):
        modules = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in modules if name and name.split(".")[-1].startswith("test_")], path.name


@pytest.mark.parametrize(
    ("rule", "pattern", "home"),
    [
        ("files replace others in one place", r"os\.(replace|rename)\(", {"files.py"}),
        ("temporary files are made in one place", r"tempfile\.|\.tmp\"", {"files.py"}),
        ("hashes of files are taken in one place", r"hashlib\.", {"files.py", "adversary.py"}),
        ("what takes a sigma is decided in one place", r"default_sigma\(", {"scenario.py", "__init__.py"}),
        ("frame stacks in the wrong place are found in one place", r"comes after \{", {"noise_placement.py"}),
        ("noise is told from its name in one place", r"NoisyObservationWrapper\.__name__", {"layers.py"}),
    ],
)
def test_each_rule_stands_in_one_place(rule, pattern, home):
    found = {path.name for path in (ROOT / "sb3_camp").rglob("*.py") if re.search(pattern, path.read_text())}
    assert found <= home, rule
