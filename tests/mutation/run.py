"""Change one thing at a time in a pure module, and see whether a test of that module notices.

`python tests/mutation/run.py [MODULE ...]`: mutmut makes the changes; what it leaves out is decorated functions, and
what stands outside of functions. The wording of sentences is left out as well: `docs/reference/findings.md` shows it,
and `tests/docs` compares. `kept.jsonl` lists each change that no test notices, with the reason why it is left alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("kept.jsonl")
TREES = ROOT / ".nox" / "mutation-trees"
# Which tests speak of a module, so that a change is noticed near where it was made, and soon.
TESTS = {
    "_text": ["text"],
    "errors": ["errors"],
    "_mask": ["mask"],
    "_rocm": ["rocm"],
    "_misspelled": ["misspelled"],
    "_request": ["request"],
    "_launch": ["launchers", "launchers_made_up"],
    "_nesting": ["launchers", "launchers_made_up", "sharing"],
    "launchers": ["launchers", "launchers_made_up"],
    "_sharing": ["sharing", "launchers"],
    "_snapshot": ["snapshot"],
    "_resolve": ["resolve", "rules"],
    "_diagnosis": ["rules"],
    "_mask_rules": ["rules"],
    "_host_rules": ["rules", "isolation"],
    "_mig_rules": ["rules"],
    "_rocm_rules": ["rules", "rocm"],
    "_rules": ["rules"],
    "policies": ["policies"],
}
# Left out is a test that starts another Python, which would not find what mutmut changed.
CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/safedev/{module}.py"]
also_copy = ["docs", "CHANGELOG.md", "README.md"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-k", "not loaded_late"]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 8.0
track_dependencies = false
use_git_change_detection = false
"""
# Few examples, and the same each time: what only a rare one notices, no test states.
PROFILE = """
from hypothesis import settings

settings.register_profile("few", max_examples=10, derandomize=True, database=None, deadline=None)
settings.load_profile("few")
"""
SURVIVED = {0, 5, 33, None}  # of pytest: all passed, none was chosen; of mutmut: no test comes by, not tried


def mutate() -> None:
    """Let mutmut work in this folder, but not on words: a text with a blank in it is a sentence."""
    from mutmut.mutation import file_mutation, mutators

    def not_words(node: object) -> object:
        value = getattr(node, "value", "")
        prose = re.search(r"[a-z]{2,},? [a-z]", value) and not value.startswith("r")
        return () if prose else mutators.operator_string(node)

    file_mutation.mutation_operators = [
        (kind, not_words if operator is mutators.operator_string else operator)
        for kind, operator in mutators.mutation_operators
    ]
    from mutmut.__main__ import cli

    cli(["run", "--max-children", "1"])


def key(entry: dict[str, str]) -> tuple[str, ...]:
    """What tells one change from another; line numbers are no part of it."""
    return tuple(entry[part] for part in ("module", "function", "was", "now"))


def outcome(module: str) -> tuple[int, int, list[dict[str, str]]]:
    """How many changes mutmut made in *module*, how many a test noticed, and the others."""
    tree = TREES / module
    shutil.rmtree(tree, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "_build")
    for folder in ("src", "tests/pure", "docs"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    for name in ("CHANGELOG.md", "README.md"):
        shutil.copy(ROOT / name, tree / name)
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    (tree / "tests" / "conftest.py").write_text(conftest + PROFILE, encoding="utf-8")
    tests = [f"tests/pure/test_{name}.py" for name in TESTS[module]]
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8") + CONFIG.format(module=module, tests=tests)
    (tree / "pyproject.toml").write_text(config, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, __file__, "--mutate"]
    with (tree / "log").open("wb") as log:
        failed = subprocess.run(command, cwd=tree, env=env, stdout=log, stderr=log, check=False).returncode
    if failed:
        sys.exit(f"mutmut failed: see {tree / 'log'}")
    return survivors(tree, module)


def survivors(tree: Path, module: str) -> tuple[int, int, list[dict[str, str]]]:
    """Read what mutmut left in *tree*; equal changes of equal lines of a function are one."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    os.chdir(tree)
    path = Path("src/safedev") / f"{module}.py"
    codes = json.loads((tree / "mutants" / f"{path}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for name, code in codes.items():
        if code in SURVIVED:
            function = re.sub(r".*\.x_?|__mutmut_\d+$", "", name).replace("\u01c1", ".").lstrip(".")
            lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
            was, now = (" ".join(_bare(line) for line in lines if line[0] == sign) for sign in "-+")
            entry = {"module": module, "function": function, "was": was, "now": now}
            found[key(entry)] = entry
    return len(codes), sum(code not in SURVIVED for code in codes.values()), list(found.values())


def _bare(line: str) -> str:
    return line[1:].partition("  # ")[0].strip()


def main(modules: list[str]) -> int:
    """Print the score of each module, and what the list lacks or has too much; 1 if there is any of that."""
    unknown = set(modules) - set(TESTS)
    if unknown:
        sys.exit(f"no tests are named for {', '.join(sorted(unknown))}; there are {', '.join(TESTS)}")
    kept = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    wrong = 0
    for module in modules or TESTS:
        made, noticed, survived = outcome(module)
        listed = {key(entry) for entry in kept if entry["module"] == module}
        alive = {key(entry) for entry in survived}
        print(f"{module}: {noticed} of {made} changes noticed, {len(alive & listed)} listed", flush=True)
        for entry in survived:
            if key(entry) not in listed:
                print(f"  no test notices {json.dumps(entry, ensure_ascii=False)}")
        for _, function, was, now in sorted(listed - alive):
            print(f"  listed in {KEPT.name}, but noticed, or gone: in {function}, {was} -> {now}")
        wrong += len(alive ^ listed)
    return min(wrong, 1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--mutate"]:
        mutate()
    else:
        sys.exit(main(sys.argv[1:]))
