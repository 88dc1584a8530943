"""The commands and the code that the documentation prints: they are taken as they stand, and what they read is made before."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest
from support.documented import PAGES, ROOT, blocks, commands, parse

import sb3_camp.zoo
from sb3_camp.__main__ import COMMANDS

PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Pages on which the others build: the runs that their commands make may be used everywhere
FIRST_PAGES = ("docs/getting_started.md",)
# Its agents come from make quickstart
MADE_BY_MAKE = {("quickstart/logs", "camp_dqn", "CartPole-v0"), ("quickstart/logs", "gaussian_dqn", "CartPole-v0")}


# What a page builds, or stands for
# Written on the page, or those of others that this package does not need
MODULES_OF_A_PAGE = ("my_package", "thermostat", "wandb", "mlflow", "Box2D")


@pytest.fixture(scope="module", autouse=True)
def registered():
    sb3_camp.zoo.register()


def test_the_pages_are_found_and_have_commands():
    assert len(PAGES) > 15 and sum(len(commands(page)) for page in PAGES) > 60
    assert ["sb3_camp.certify", "logs/camp_dqn/CartPole-v0_1", "--targets", "100"] in commands(ROOT / FIRST_PAGES[0])


# The page on extending it has a test that executes all of it, with the package that it builds
@pytest.mark.parametrize("name", [name for name in PAGE_NAMES if name != "docs/extending.md"])
def test_each_printed_command_is_taken_by_its_parser(name, capsys):
    for command in commands(ROOT / name):
        try:
            parse(command)
        except SystemExit as error:
            pytest.fail(f"{name}: {' '.join(command)}\n{capsys.readouterr().err}{error}")


def test_a_wrong_option_is_noticed():
    for wrong in (["sb3_camp.certify", "a", "--nonsense"], ["rl_zoo3.train", "--algo", "nonsense"], ["sb3_camp.plot", "x"]):
        with pytest.raises(SystemExit):
            parse(wrong)


def runs_of(command: list[str]) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """The runs (log folder, algorithm, environment) that a command makes, and those that it needs."""
    program, *words = command
    options = dict(pairwise(words))
    run = (options.get("-f", "logs"), options.get("--algo", ""), options.get("--env", "").replace("/", "-"))
    used = {
        (match[1], match[2], match[3])
        for word in words
        for match in re.finditer(r"([\w./]+)/(\w+_dqn|dqn|ppo|ars|qrdqn|a2c|sac)/([\w-]+-v\d+)_\d+", word)
    }
    if program == "rl_zoo3.train":
        return ({run} if "-optimize" not in words else set()), used
    if program.endswith("_teacher.py"):
        return {(run[0], "ars" if "linear" in program else "dqn", run[2])}, used
    if program in ("sb3_camp.evaluate", "sb3_camp.attack", "rl_zoo3.enjoy") and "--model" not in words:
        used.add(run)
    return set(), used


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_the_runs_that_a_page_uses_are_made_on_it_or_in_the_first_steps(name):
    made = set(MADE_BY_MAKE)
    for page in (*FIRST_PAGES, name):
        for command in commands(ROOT / page):
            new, used = runs_of(command)
            missing = {run for run in used if run not in made and run[0] != "rl-trained-agents"}
            assert not missing, f"{name}: {' '.join(command)}: no command before makes {missing}"
            made |= new


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_make_targets_extras_and_files_that_a_page_names_exist(name):
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    extras = re.findall(r"^(\w+) = \[$", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    text = (ROOT / name).read_text()
    named = re.findall(r"`make ([a-z][\w-]*)", text)
    for block in blocks(ROOT / name, "sh"):
        named += re.findall(r"^make ([a-z][\w-]*)", block, flags=re.MULTILINE)
    assert set(named) <= targets
    assert {extra for found in re.findall(r"\.\[([\w,]+)\]", text) for extra in found.split(",")} <= set(extras)
    words = {word for command in commands(ROOT / name) for word in command}
    files = {word for word in words if word.startswith(("hyperparams/", "zoo_scripts/", "benchmarks/"))}
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_the_code_of_a_page_compiles_and_what_it_imports_exists(name):
    """Notebooks run when the site is built."""
    for text in blocks(ROOT / name, "python"):
        imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        if not any(name in ast.unparse(node) for node in imports for name in MODULES_OF_A_PAGE):
            exec(compile(ast.Module(imports, []), name, "exec"), {})


def test_all_public_packages_are_in_the_reference_of_the_api():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    packages = [path.parent.name for path in (ROOT / "sb3_camp").glob("*/__init__.py") if "__all__" in path.read_text()]
    assert len(packages) > 10
    assert [name for name in packages if f"sb3_camp.{name}" not in text] == []


def test_all_commands_are_on_the_page_of_commands():
    text = (ROOT / "docs" / "commands.md").read_text()
    kinds = {"plot": ["plot certificate", "plot attack", "plot both"]}
    for command in COMMANDS:
        for name in kinds.get(command, [command]):
            assert f".. command-options:: {name}\n" in text


def test_all_pages_are_in_the_contents_of_the_site():
    listed = {name for index in ("docs", "docs/api") for name in (ROOT / index / "index.md").read_text().split()}
    pages = {
        page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")
    }
    assert [page for page in pages if page.removeprefix("api/") not in listed and not page.endswith("index")] == []


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_links_lead_to_files_that_exist(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text)]
    assert [target for target in targets if not (page.parent / target).exists()] == []
