"""Measure the house: code lines per room and of evidence, files that know an operator, names that mean two things.

    python tools/measure_house.py            # everything, as text
    python tools/measure_house.py --json

A code line is one that holds code: blank lines, comments, docstrings and imports do not count. A file knows an operator
if a text in it is the name or it has the function of torch as a value; names that are put together (`max_pool{n}d`) and
calls are not seen, and languages of our own that have instructions of that name are left out.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "presilicon"
EVIDENCE = ROOT / "evidence"
APART = ("web",)
"""Rooms that are not part of the engine's budget."""
OPERATORS = (
    "add", "mul", "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "softmax", "log_softmax", "layer_norm", "rms_norm",
    "batch_norm", "group_norm", "dropout", "embedding", "max_pool2d", "conv2d", "scaled_dot_product_attention", "lstm",
)  # fmt: skip
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """Lines that hold code.

    >>> code_lines("import os\\n\\nx = 1  # one\\n# two\\ny = (x +\\n     2)\\n")
    3
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def modules() -> Iterator[tuple[str, Path, str]]:
    """The room, path and source of every module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        yield (parts[0] if len(parts) > 1 else "presilicon"), path, path.read_text()


def named_in(operator: str, tree: ast.AST) -> bool:
    """Whether a module knows an operator: it compares with torch's function or has it in a table, or a text is its
    name. A call of the function, or a call that it is handed to, uses the operator without knowing about it."""
    words = {operator, f"{operator}_", f"_{operator}"}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    used = {id(part) for call in calls for part in (call.func, *call.args)}
    kinds = {id(part) for node in ast.walk(tree) if _is_of_kind(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in kinds:
            continue
        if (
            isinstance(node, ast.Attribute)
            and id(node) not in used
            and node.attr in words
            and _owner(node.value) in _NAMESPACES
        ):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for text in _names_in(node.value):
                name = re.sub(r"^(aten(::|\.)|(torch\.)?(nn\.)?functional\.|torch\.)", "", text)
                if re.sub(r"\.\w+$", "", name) in words and not _is_text(tree, node):
                    return True
    return False


def _names_in(text: str) -> list[str]:
    """The words of a list of names in one text; any other text is one name at most."""
    words = text.split()
    is_list = len(words) > 3 and not _ENGLISH & set(words) and re.fullmatch(r"[\w\s]+", text)
    return words if is_list else [text]


_ENGLISH = {"a", "an", "and", "are", "by", "for", "in", "is", "it", "no", "not", "of", "on", "or", "that", "the", "to"}


def _is_of_kind(node: ast.AST) -> bool:
    """Whether an expression is about kinds of ops, of which some are called as an operator is: a comparison with a
    kind, or the list of all kinds."""
    if isinstance(node, ast.Compare):
        return isinstance(node.left, ast.Attribute) and node.left.attr == "kind"
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    return isinstance(target, ast.Name) and target.id in ("OpKind", "KINDS")


def _is_text(tree: ast.AST, constant: ast.Constant) -> bool:
    """Whether a text is documentation."""
    return any(isinstance(node, ast.Expr) and node.value is constant for node in ast.walk(tree))


_LANGUAGES = (
    "programs", "formats", "instrument", "rtl", "ops/custom", "designs/instrument.py", "simulation/instrument.py",
    "emulation/steps", "scheduling/runtime/opencl/printing.py",
)  # fmt: skip
"""Places whose own languages have instructions called as operators are: `add` of the firmware, `exp` of formulas and of
their executions in rounded steps and on boards."""
_NAMESPACES = ("torch", "functional", "F", "aten", "nn", "prims", "ops")


def _owner(node: ast.AST) -> str:
    """The last name of an expression such as `torch.ops.aten`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def measure() -> dict[str, Any]:
    """Everything that is measured, as plain data."""
    rooms: Counter[str] = Counter()
    operators: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, list[str]] = defaultdict(list)
    first_words: Counter[str] = Counter()
    long_functions: list[tuple[int, str]] = []
    for room, path, source in modules():
        tree, place = ast.parse(source), path.relative_to(PACKAGE).as_posix()
        rooms[room] += code_lines(source)
        for operator in OPERATORS:
            if not place.startswith(_LANGUAGES) and named_in(operator, tree):
                operators[operator].append(place)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(place)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                words = (ast.get_docstring(node) or "").split()
                if words:
                    first_words[words[0].strip(".,:")] += 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                long_functions.append((length, f"{place}:{node.name}"))
    engine = sum(count for room, count in rooms.items() if room not in APART)
    return {
        "rooms": dict(rooms.most_common()),
        "engine": engine,
        "evidence": sum(code_lines(path.read_text()) for path in EVIDENCE.rglob("*.py")),
        "operators": {name: operators[name] for name in OPERATORS},
        "collisions": {name: places for name, places in sorted(classes.items()) if len(places) > 1},
        "docstrings": {word: first_words[word] for word in ("What", "Of", "Whoever")},
        "longest functions": [f"{length} {name}" for length, name in sorted(long_functions, reverse=True)[:10]],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true")
    found = measure()
    if options.parse_args().json:
        json.dump(found, sys.stdout, indent=2)
        return
    print("code lines per room (no blanks, comments, docstrings, imports)")
    for room, count in found["rooms"].items():
        print(f"  {room:12} {count:7,}")
    print(f"  {'engine':12} {found['engine']:7,}  (without {', '.join(APART)})")
    print(f"  {'evidence':12} {found['evidence']:7,}  (apart from the engine)")
    print("files that name an operator")
    for operator, places in found["operators"].items():
        print(f"  {operator:30} {len(places):3}  in {len({place.split('/')[0] for place in places})} rooms")
    print(f"public classes of one name in several modules: {len(found['collisions'])}")
    for name, places in found["collisions"].items():
        print(f"  {name:20} {', '.join(places)}")
    print("docstrings that begin with: " + ", ".join(f"{word} {count}" for word, count in found["docstrings"].items()))
    print("longest functions (lines)")
    for line in found["longest functions"]:
        print(f"  {line}")


if __name__ == "__main__":
    main()
