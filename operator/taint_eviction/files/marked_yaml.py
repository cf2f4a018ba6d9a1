"""YAML with line numbers, and all of its problems, each with file, line, and what was expected.

``load`` turns one document into ``Marked`` values; ``Reading`` reads them and notes every problem instead of stopping
at the first. Strict about common mistakes: duplicate keys, unknown keys (with the most similar known one), numbers
instead of text. Times stay text, as in JSON. Other modules define the meaning of the keys.
"""

import difflib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from taint_eviction.files.durations import parse_seconds


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong in a file."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class Malformed(Exception):
    """A file that cannot be used; ``problems`` has everything that is wrong with it, by line."""

    def __init__(self, problems: Collection[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Marked:
    """A value of a document and the line where it begins.

    ``value`` is None, a bool, int, float or str, a list of ``Marked``, or a dict from str to ``Marked``.
    ``key_lines`` has the line of each key of a mapping.
    """

    value: Any
    line: int
    key_lines: Mapping[str, int]

    def __iter__(self) -> Iterator["Marked"]:
        """Yield the items of a list; other values have none."""
        return iter(self.value if isinstance(self.value, list) else ())

    def plain(self) -> Any:
        """Return the value without lines, as ``json`` would."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def without_timestamps(resolvers: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return PyYAML's resolvers of plain scalars without timestamps: as in JSON, times stay text."""
    timestamp = "tag:yaml.org,2002:timestamp"
    return {first: [each for each in found if each[0] != timestamp] for first, found in resolvers.items()}


class _Loader(yaml.SafeLoader):
    """YAML whose times stay text."""

    yaml_implicit_resolvers = without_timestamps(yaml.SafeLoader.yaml_implicit_resolvers)


# Aliases can make a small file huge; no file written by hand has this many values.
_MAX_VALUES = 50_000
# Python refuses to print integers of thousands of digits; 64 bits are enough here.
_LARGEST_INTEGER = 10**30

# So many known names are listed where a name is not known.
_MAX_LISTED = 100


def read_text(path: Path) -> str:
    """Read a file; raise ``Malformed`` if that fails or it is not UTF-8."""
    try:
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise Malformed([Problem(str(path), 1, f"it cannot be read: {error.strerror or error}")]) from error


def decoded(raw: bytes, file: str) -> str:
    """Return a file's bytes as text; raise ``Malformed`` if they are not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise Malformed([Problem(file, line, "the file is not UTF-8 text")]) from error


def load(text: str, file: str) -> Marked:
    """Read the one document of a file; raise ``Malformed`` if it is not YAML."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise Malformed([Problem(file, 1, "the file is empty")])
        return _Marking(file, loader).mark(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(error.problem or error.context or "it is not valid YAML").split())
        raise Malformed([Problem(file, mark.line + 1 if mark else 1, what)]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"it is not valid YAML: unacceptable character #x{error.character:04x}"
        raise Malformed([Problem(file, line, what)]) from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed([Problem(file, 1, f"it is not valid YAML: {' '.join(str(error).split())}")]) from error


class _Marking:
    def __init__(self, file: str, loader: _Loader) -> None:
        self._file = file
        self._loader = loader
        self._values = 0
        self._open: set[int] = set()

    def mark(self, node: yaml.Node) -> Marked:
        line = node.start_mark.line + 1
        self._values += 1
        if id(node) in self._open or self._values > _MAX_VALUES:
            raise Malformed([Problem(self._file, line, "aliases (*) make the file endless or far too large")])
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, line)
            if isinstance(node, yaml.SequenceNode):
                return Marked([self.mark(item) for item in node.value], line, {})
            return Marked(self._scalar(cast(yaml.ScalarNode, node)), line, {})
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, line: int) -> Marked:
        values: dict[str, Marked] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise Malformed([Problem(self._file, key_line, "a key must be text")])
            key = str(key_node.value)
            if key in values:
                raise Malformed([Problem(self._file, key_line, f"{key!r} is here twice (first in line {lines[key]})")])
            values[key], lines[key] = self.mark(value_node), key_line
        return Marked(values, line, lines)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        line = node.start_mark.line + 1
        try:
            value = self._loader.construct_object(node)
        except (LookupError, AttributeError) as error:
            # PyYAML's way to say that a value does not fit its tag: !!bool maybe, !!int "".
            raise Malformed([Problem(self._file, line, f"{node.value[:40]!r} is no {node.tag}")]) from error
        except (ValueError, OverflowError) as error:
            raise Malformed([Problem(self._file, line, f"it is not valid YAML: {error}")]) from error
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise Malformed([Problem(self._file, line, "this number is too large")])
        return value if value is None or isinstance(value, bool | int | float | str) else node.value


class Reading:
    """Reads marked values, and notes everything that is wrong in ``problems``.

    Each method returns a usable value even after a problem, so that the rest is read, too.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def problem(self, line: int, what: str) -> None:
        """Note a problem; characters that cannot be printed are escaped, so that it stays one line."""
        shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in what)
        self.problems.append(Problem(self.file, line, shown))

    def fields(self, at: Marked, known: Collection[str], what: str) -> dict[str, Marked]:
        """Read a mapping whose keys are among ``known``; ``what`` names it for people."""
        if not isinstance(at.value, dict):
            self.problem(at.line, f"{what} must be a mapping of {_listed(known)}, not {described(at)}")
            return {}
        for key in at.value:
            if key not in known:
                self.problem(at.key_lines[key], f"unknown key {key!r} in {what}{self._nearest(key, known)}")
        return {key: value for key, value in at.value.items() if key in known}

    def _nearest(self, key: str, known: Collection[str]) -> str:
        close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.5)
        if not close:
            folded = {name.lower(): name for name in known}
            close = [folded[name] for name in difflib.get_close_matches(key.lower(), sorted(folded), n=1, cutoff=0.5)]
        return (
            f"; did you mean {close[0]!r}?" if close else f"; known: {_listed(known)}" if known else "; there is none"
        )

    def items(self, at: Marked | None, what: str) -> list[Marked]:
        """Read a list; absent and null are empty."""
        if at is None or at.value is None:
            return []
        if not isinstance(at.value, list):
            self.problem(at.line, f"{what} must be a list, not {described(at)}")
            return []
        return list(at)

    def text(self, at: Marked, what: str, among: Collection[str] = ()) -> str:
        """Read a text; one of ``among``, unless that is empty."""
        if isinstance(at.value, str):
            if among and at.value not in among:
                self.problem(at.line, f"{what} must be one of {_listed(among)}, not {at.value!r}")
            return at.value
        hint = ""
        if isinstance(at.value, int | float):
            # The original spelling of a boolean (yes, off) is no longer known.
            hint = " (write it in quotes)" if isinstance(at.value, bool) else f" (write it in quotes: '{at.value}')"
        self.problem(at.line, f"{what} must be text, not {described(at)}{hint}")
        return ""

    def boolean(self, at: Marked, what: str) -> bool:
        """Read true or false."""
        if isinstance(at.value, bool):
            return at.value
        self.problem(at.line, f"{what} must be true or false, not {described(at)}")
        return False

    def whole_number(self, at: Marked, what: str, min: int | None = None) -> int:
        """Read a whole number, not below ``min``."""
        if isinstance(at.value, int) and not isinstance(at.value, bool) and (min is None or at.value >= min):
            return at.value
        bound = "" if min is None else f" of at least {min}"
        self.problem(at.line, f"{what} must be a whole number{bound}, not {described(at)}")
        return min or 0

    def number(self, at: Marked, what: str) -> float:
        """Read a number above 0."""
        if isinstance(at.value, int | float) and not isinstance(at.value, bool) and 0 < at.value < math.inf:
            return float(at.value)
        self.problem(at.line, f"{what} must be a number of more than 0, not {described(at)}")
        return 1.0

    def seconds(self, at: Marked, what: str, min: float | None = None) -> float:
        """Read a duration in seconds, not below ``min``."""
        try:
            seconds = parse_seconds(at.value)
        except ValueError as expected:
            self.problem(at.line, f"{what} must be {expected}, not {described(at)}")
            return min or 0.0
        if min is not None and seconds < min:
            self.problem(at.line, f"{what} must be at least {min:g} s, not {described(at)}")
            return min
        return seconds

    def only(self, fields: Mapping[str, Marked], needed: Collection[str], line: int, what: str) -> bool:
        """Note which required keys are missing; return whether none is missing."""
        missing = [key for key in needed if key not in fields]
        for key in missing:
            self.problem(line, f"{what} lacks {key!r}")
        return not missing


def described(at: Marked) -> str:
    """Describe a value for people, as in "not …"."""
    match at.value:
        case None:
            return "nothing"
        case bool():
            return "true" if at.value else "false"
        case int() | float():
            return f"the number {at.value}"
        case str():
            return f"{at.value[:40]!r}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _listed(names: Collection[str]) -> str:
    """Return names in order: all keywords of a format, but not all pods of a large scenario."""
    more = ", …" if len(names) > _MAX_LISTED else ""
    return ", ".join(sorted(names)[:_MAX_LISTED]) + more
