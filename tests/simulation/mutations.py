"""The mutants of a module: each has one comparison, operator, constant, condition or statement changed.

Only code in functions is changed: no docstrings, annotations or fields of dataclasses, and not ``assert_never``. This
module runs no test (``mutate_core``).
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A changed module. ``source`` is the whole module; ``where`` names the line and its change."""

    module: str
    where: str
    source: str

    @property
    def key(self) -> str:
        """A key that stays the same as long as the module does."""
        return hashlib.sha256(f"{self.module}\n{self.source}".encode()).hexdigest()[:24]


def changes(node: ast.AST) -> Iterator[str]:
    """Change ``node`` in place in each possible way, one after another; yield a description, and undo the change."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    ops[at] = other()
                    yield f"{type(op).__name__} → {other.__name__}"
                ops[at] = op
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} → {type(node.op).__name__}"
            node.op = op
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            node.op = _OPERATORS[type(operator)]()
            yield f"{type(operator).__name__} → {type(node.op).__name__}"
            node.op = operator
        case ast.Constant(value=bool(value)):
            node.value = not value
            yield f"{value} → {not value}"
            node.value = value
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
            yield f"{value} → {value + 1}"
            node.value = value
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if _is_plain(test):
            node.test = ast.UnaryOp(ast.Not(), test)
            yield f"if {_short(test)} → if not"
            node.test = test
        case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
            function.id = _FUNCTIONS[name]
            yield f"{name} → {function.id}"
            function.id = name
        case _:
            yield from _omissions(node)


def _omissions(node: ast.AST) -> Iterator[str]:
    """Remove a ``not``, a call, an assignment or a condition."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.operand = ast.UnaryOp(ast.Not(), operand)
            yield "without not"
            node.operand = operand
        case ast.Expr(value=ast.Call() as call) if _short(call.func) != "assert_never":
            node.value = ast.Constant(None)
            yield f"without {_short(call)}"
            node.value = call
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()] as targets):
            node.targets = [ast.Name("_")]
            yield f"without {_short(targets[0])} ="
            node.targets = targets
        case ast.Delete(targets=targets):
            node.targets = [ast.Tuple([])]
            yield f"without del {_short(targets[0])}"
            node.targets = targets
        case ast.comprehension(ifs=[condition, *others]):
            node.ifs = others
            yield f"without if {_short(condition)}"
            node.ifs = [condition, *others]


def _is_plain(test: ast.expr) -> bool:
    """Return whether a test is neither a comparison nor a ``not``: those are negated by other changes."""
    return not isinstance(test, ast.Compare | ast.UnaryOp)


def _short(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:60]


def mutants(path: Path) -> list[Mutant]:
    """List the mutants of a module."""
    module, tree = path.stem, ast.parse(path.read_text(encoding="utf-8"))
    functions = [function for function in ast.walk(tree) if isinstance(function, ast.FunctionDef)]
    # Functions inside functions are visited twice.
    nodes = {id(node): node for function in functions for line in function.body for node in ast.walk(line)}
    found = []
    for node in nodes.values():
        place = node.ifs[0] if isinstance(node, ast.comprehension) and node.ifs else node
        for what in changes(node):
            where = f"{module}.py:{getattr(place, 'lineno', 0)} {what}"
            found.append(Mutant(module, where, ast.unparse(tree)))
    return found
