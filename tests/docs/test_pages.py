"""What the reference lists is what the code has."""

from __future__ import annotations

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import safedev

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def codes() -> set[str]:
    """Return every code that a finding can have: what the source gives as `code`, or calls a mask's defect."""
    found: set[str] = set()
    for module in (ROOT / "src" / "safedev").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                found.add(str(node.value.value))
            elif isinstance(node, ast.Constant) and re.fullmatch(r"masks?-[a-z-]+", str(node.value)):
                found.add(str(node.value))
    return found


def headings(page: Path, level: int) -> list[str]:
    """Return the headings of a page, of one level."""
    return re.findall(rf"^#{{{level}}} (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_code_has_its_heading() -> None:
    """
    The headings of the page of findings are the codes that findings can have, each once.
    """
    assert sorted(codes()) == sorted(headings(DOCS / "reference" / "findings.md", 3))


@pytest.mark.parametrize("code", sorted(codes()))
def test_a_code_is_explained(code: str) -> None:
    """
    Under its heading stand an example that names the code, the cause and the fix.
    """
    page = (DOCS / "reference" / "findings.md").read_text(encoding="utf-8")
    section = page.partition(f"### {code}\n")[2].partition("\n### ")[0]

    assert f"[{code}]" in section
    assert "\nCause\n:" in section
    assert "\nFix\n:" in section


def test_the_page_of_errors_names_them_all() -> None:
    """
    The table of errors and warnings holds every one that the package exports.
    """
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    exported = [name for name in safedev.__all__ if name.endswith(("Error", "Warning"))]

    assert exported == [name for name in exported if f"| `{name}` |" in page]


@pytest.mark.parametrize("module", ["safedev", *(f"safedev.{name}" for name in sorted(safedev._MODULES))])
def test_every_public_name_has_its_place(module: str) -> None:
    """
    What a public module exports is on the page of the API or on that of the errors.
    """
    pages = "".join((DOCS / "reference" / page).read_text(encoding="utf-8") for page in ("api.md", "errors.md"))

    assert [] == [name for name in import_module(module).__all__ if not re.search(rf"\b{name}\b", pages)]


def test_a_code_in_a_message_links_to_its_heading() -> None:
    """
    Wherever a page shows a message; its text stays as it is.
    """
    pytest.importorskip("sphinx")
    from docutils import nodes, utils

    tree, text = (
        utils.new_document("page"),
        "cuda:5 is invalid\n  why: it stands in the mask [physical-index]\n  fix: ...",
    )
    block = nodes.literal_block(text, text, language="text")
    tree += block
    app = SimpleNamespace(builder=SimpleNamespace(get_relative_uri=lambda _page, to: f"{to}.html"))
    runpy.run_path(str(DOCS / "conf.py"))["link_codes"](app, tree, "index")

    assert ["reference/findings.html#physical-index"] == [link["refuri"] for link in block.findall(nodes.reference)]
    assert text == block.astext()


def test_every_row_on_a_version_of_torch_names_its_test() -> None:
    """
    Below a table that tells what safedev does stand, row by row, the stand-in tests that show it.
    """
    page = (DOCS / "reference" / "versions.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| torch \|.*what safedev does \|\n\|[-|]+\n((?:\|.*\n)+)\n((?:%.*\n)*)", page, re.MULTILINE)
    rows = [row.split(" | ")[0].removeprefix("| ") for table, _ in tables for row in table.splitlines()]
    tested = [line.removeprefix("% tested, ").split(": ")[0] for _, lines in tables for line in lines.splitlines()]

    assert 3 == len(tables)
    assert rows == tested


def test_every_test_that_the_versions_name_exists() -> None:
    """
    Among those of versions by stand-ins.
    """
    page = (DOCS / "reference" / "versions.md").read_text(encoding="utf-8")
    named = {name for line in re.findall(r"^% tested.*$", page, re.MULTILINE) for name in re.findall(r"test_\w+", line)}
    there = re.findall(r"^def (test_\w+)", (ROOT / "tests/torch/test_torch_versions.py").read_text(), re.MULTILINE)

    assert set() == named - set(there)


def test_the_house_has_a_room_for_every_module() -> None:
    """
    The table that those who contribute read names each module of the package, and no other.
    """
    house = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## The house")[2].partition("\n## ")[0]
    modules = {path.stem for path in (ROOT / "src" / "safedev").glob("*.py")} - {"__init__", "__main__"}

    assert modules | {"testing"} == set(re.findall(r"`(\w+)`", house.partition("|---|---|")[2]))


def test_a_constant_is_in_the_module_that_the_steps_name() -> None:
    """
    Where those who contribute are told to add to `NAME` of `module.py`, that module defines it.
    """
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"`(_?[A-Z]+)` of `([\w/]+\.py)`", page)
    files = {path: ROOT / ("" if "/" in path else "src/safedev") / path for _, path in told}
    defined = [(name, path) for name, path in told if re.search(rf"(?m)^{name}\b[^=\n]* =", files[path].read_text())]

    assert told
    assert told == defined


def test_every_type_that_a_diagnosis_holds_is_documented() -> None:
    """
    The dataclasses that are reached from one, attribute by attribute, are on the page of the API.
    """
    fields: dict[str, str] = {}  # the annotations of each dataclass, as text
    for module in (ROOT / "src" / "safedev").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                held = [one.annotation for one in node.body if isinstance(one, ast.AnnAssign)]
                fields[node.name] = " ".join(map(ast.unparse, held))
    reached = ["Diagnosis"]
    for name in reached:
        reached += [one for one in fields if one not in reached and re.search(rf"\b{one}\b", fields[name])]
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")

    assert {"Isolation", "PhysicalDevice", "Request", "Snapshot"} <= set(reached)
    assert [] == [name for name in reached if not re.search(rf"autoclass:: [\w.]+\.{name}\(\)", page)]
