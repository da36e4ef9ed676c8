"""Plants a defect in an imported planner, for the overlays in ``tests/mutants``, and counts how often it is met.

A defect is either a function put in another's place (``plant``) or an edit of the planner's own syntax tree
(``rewrite``), compiled anew under the same file and lines so that a refusal still names its place. Either way the
calls are counted: a defect that no case reaches says nothing about the oracles. Runs in the worker.
"""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fuzz.planners.isolate import replace_everywhere

Wrong = Callable[..., Any]
"""``wrong(original, *args, **kwargs)`` takes the place of ``original(*args, **kwargs)``."""

Change = Callable[[ast.AST], ast.AST | None]
"""What a node of the syntax tree becomes; None leaves it."""

_met = 0


class NotPlanted(Exception):
    """The planner is not the one that the defect was written for."""


def take_reached() -> bool:
    """Whether a planted function was called since this was last asked."""
    global _met
    met, _met = _met, 0
    return met > 0


def _meet() -> None:
    global _met
    _met += 1


def plant(owner: Any, name: str) -> Callable[[Wrong], Wrong]:
    """A decorator that puts a function in the place of ``owner.name``: a module's function, a method, a class
    method or a property. A module's function is replaced wherever vLLM has taken it by name.
    """
    held = inspect.getattr_static(owner, name)

    def put(wrong: Wrong) -> Wrong:
        if isinstance(held, classmethod):
            function = held.__func__

            def by_class(cls: type, *args: Any, **kwargs: Any) -> Any:
                _meet()
                return wrong(functools.partial(function, cls), *args, **kwargs)

            setattr(owner, name, classmethod(by_class))
        elif isinstance(held, property):
            getter = held.fget

            def got(instance: Any) -> Any:
                _meet()
                return wrong(getter, instance)

            setattr(owner, name, property(got))
        else:

            @functools.wraps(held)
            def called(*args: Any, **kwargs: Any) -> Any:
                _meet()
                return wrong(held, *args, **kwargs)

            setattr(owner, name, called)
            if isinstance(owner, ModuleType):
                replace_everywhere(name, held, called)
        return wrong

    return put


def rewrite(planner: ModuleType, name: str, change: Change) -> None:
    """Compiles the function ``planner.name`` anew with ``change`` made to one node of its syntax tree.

    Raises:
        NotPlanted: no node changed, or several did.
    """
    original = getattr(planner, name)
    tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
    ast.increment_lineno(tree, original.__code__.co_firstlineno - 1)
    editor = _Editor(change)
    tree = ast.fix_missing_locations(editor.visit(tree))
    if editor.changed != 1:
        raise NotPlanted(f"{name}: {editor.changed} places would change, 1 was expected; this is another planner")
    made: dict[str, Any] = {}
    # Annotations stay text: some name types that are imported for checkers only.
    flags = __future__.annotations.compiler_flag
    exec(compile(tree, original.__code__.co_filename, "exec", flags=flags), original.__globals__, made)
    edited = made[name]

    @plant(planner, name)
    def _(_original: Any, *args: Any, **kwargs: Any) -> Any:
        return edited(*args, **kwargs)


class _Editor(ast.NodeTransformer):
    def __init__(self, change: Change) -> None:
        self._change = change
        self.changed = 0

    def visit(self, node: ast.AST) -> Any:
        found = self._change(node)
        if found is None:
            return self.generic_visit(node)
        self.changed += 1
        return ast.copy_location(found, node)


def instead(text: str, by: str) -> Change:
    """The expression ``text`` becomes the expression ``by``."""
    wanted = ast.dump(ast.parse(text, mode="eval").body)

    def change(node: ast.AST) -> ast.AST | None:
        return ast.parse(by, mode="eval").body if isinstance(node, ast.expr) and ast.dump(node) == wanted else None

    return change


def compared(by: type[ast.cmpop], right: str) -> Change:
    """The comparison with ``right`` on its right side is made by operator ``by`` instead."""
    wanted = ast.dump(ast.parse(right, mode="eval").body)

    def change(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Compare) or ast.dump(node.comparators[-1]) != wanted:
            return None
        return ast.Compare(left=node.left, ops=[by()], comparators=node.comparators)

    return change


def called(name: str, by: str, assigned: str | None = None) -> Change:
    """The call of ``name`` calls ``by`` instead; only in the assignment to ``assigned``, when given."""

    def swapped(node: ast.AST) -> ast.Call | None:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            return ast.Call(func=ast.parse(by, mode="eval").body, args=node.args, keywords=node.keywords)
        return None

    def change(node: ast.AST) -> ast.AST | None:
        if assigned is None:
            return swapped(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == assigned:
            value = swapped(node.value)
            return value and ast.Assign(targets=node.targets, value=value)
        return None

    return change


def assigned(name: str, value: str) -> Change:
    """The assignment to ``name`` assigns ``value`` instead."""

    def change(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.Assign(targets=node.targets, value=ast.parse(value, mode="eval").body)
        return None

    return change
