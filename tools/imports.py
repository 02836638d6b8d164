"""Which tests reach a module of the package: imports are followed to where a name is defined."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

PACKAGES = ("src/presilicon", "evidence/src/presilicon_evidence")
"""The engine and the evidence beside it, which imports it."""
_MEMBER = re.compile(r"(presilicon(?:\.\w+)+):(\w+)")
"""A member of an extension point."""
_WRITTEN = re.compile(r"^[ \t]*from (presilicon[\w.]*) import ([\w, ]+)", re.MULTILINE)
"""An import in a program that a test writes and runs."""
FAR = 99


class ImportGraph:
    """The modules and tests of a tree, and which of them each module is imported by.

    A room's `__init__` imports all of its modules, so an import of a room counts for the modules of the names that are
    taken from it alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        files = [path for folder in (*PACKAGES, "tests") for path in (root / folder).rglob("*.py")]
        self._texts = {path: path.read_text(encoding="utf-8") for path in sorted(files)}
        self._trees = {path: ast.parse(text) for path, text in self._texts.items()}
        self._modules = {self._module(path): path for path in self._trees}
        self._names = {self._module(path): self._imported(path) for path in self._trees if path.stem == "__init__"}
        self._importers: dict[Path, set[Path]] = defaultdict(set)
        for path, tree in self._trees.items():
            if path.stem != "__init__":
                for imported in self._imports(path, tree):
                    self._importers[imported].add(path)
        for path in self._modules.values():
            if path.stem != "__init__" and path not in self._importers and (root / "tests") not in path.parents:
                self._importers[path] = self._namesakes(path, self._room_and_names(path)[0])

    def tests_of(self, path: str, function: str = "") -> list[str]:
        """The test files that reach a module (a path from the root), nearest first; its own examples before them.

        Tests of the room that name a `function` of the module come before others.
        """
        named = re.compile(rf"{function.strip('_')}\b") if function.strip("_") else None
        module = self.root / path
        distances, edge = {module: 0}, [module]
        while edge:
            edge = [importer for known in edge for importer in self._importers[known] if importer not in distances
                    and not distances.update({importer: distances[known] + 1})]  # fmt: skip
        room, *folders = self._room_and_names(module)

        def order(test: Path) -> tuple[bool, bool, bool, bool, bool, bool, int, int, str]:
            parts = test.relative_to(self.root / "tests").with_suffix("").parts
            near = parts[1:-1] == (room, *folders[:-1])
            is_own = near and parts[-1].removeprefix("test_").startswith(module.stem)
            in_room = len(parts) > 2 and parts[1] == room
            is_law = in_room and parts[-1].endswith("_laws")  # catches a class of mistakes, soon
            return (
                not is_own,
                not (is_law and distances.get(test) == 1),
                not (in_room and named is not None and named.search(self._texts[test])),
                not is_law,
                not near,
                not in_room,
                distances.get(test, FAR),
                len(self._texts[test]),
                str(test),
            )

        tests = [test for test in self._trees if test.name.startswith("test_") and "gpu" not in test.parts]
        reached = [test for test in tests if test in distances or order(test)[:1] == (False,)]
        examples = [path] if ">>> " in module.read_text(encoding="utf-8") else []
        return examples + [str(test.relative_to(self.root)) for test in sorted(reached, key=order)]

    def _room_and_names(self, module: Path) -> tuple[str, ...]:
        """The room of a module, and the folders and name in it; evidence counts as one room."""
        engine, evidence = (self.root / package for package in PACKAGES)
        if evidence in module.parents:
            return "evidence", *module.relative_to(evidence).with_suffix("").parts
        return module.relative_to(engine).with_suffix("").parts

    def _namesakes(self, path: Path, room: str) -> set[Path]:
        """The files of a room and its tests that name a module which is imported by its name as text."""
        word = re.compile(rf"\b{path.stem.replace('_', '[_-]')}\b")
        return {
            other for other, text in self._texts.items()
            if other not in (path, path.with_name("__init__.py")) and room in other.parts and word.search(text)
        }  # fmt: skip

    def _module(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        if "src" in parts[:2]:
            parts = parts[parts.index("src") + 1 :]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _imported(self, path: Path) -> dict[str, tuple[str, str]]:
        """The names that an `__init__` takes from modules, also for type checkers."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self._trees[path])
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def _imports(self, path: Path, tree: ast.Module) -> set[Path]:
        found: set[Path] = set()
        rooms: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    found |= self._home(node.module, alias.name)
                    if f"{node.module}.{alias.name}" in self._names:
                        rooms[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found |= self._home(*alias.name.rpartition(".")[::2]) if "." in alias.name else set()
                    if alias.name in self._names:
                        rooms[alias.asname or alias.name] = alias.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                written = [(module, names.split(",")) for module, names in _WRITTEN.findall(node.value)]
                for module, names in (*written, *((module, [name]) for module, name in _MEMBER.findall(node.value))):
                    for name in names:
                        found |= self._home(module, name.split(" as ")[0].strip())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
                found |= self._home(rooms[node.value.id], node.attr)
        return found - {path}

    def _home(self, module: str, name: str) -> set[Path]:
        """The file in which a name is defined; none outside the tree."""
        return _home(self, module, name)


@cache
def _home(graph: ImportGraph, module: str, name: str) -> set[Path]:
    whole = f"{module}.{name}"
    for spelled in (whole, f"tests.{whole}"):
        if spelled in graph._modules and spelled not in graph._names:
            return {graph._modules[spelled]}
    if module in graph._names:
        home = graph._names[module].get(name)
        return graph._home(*home) if home and home != (module, name) else {graph._modules[module]}
    for spelled in (module, f"tests.{module}"):
        if spelled in graph._modules:
            return {graph._modules[spelled]}
    return set()
