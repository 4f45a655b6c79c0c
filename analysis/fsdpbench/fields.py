"""The objects of fsdpbench's result files as Python values: their fields are attributes.

records.json, which the program's own tables write, declares them; docs/result-format.md is the same for reading. A value
is checked when it is read, because a file may be somebody else's.
"""

from __future__ import annotations

import difflib
import json
import sys
from html import escape
from keyword import iskeyword
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

# Keys and places in lists that lead to a value in a file.
_Place = Tuple[Union[str, int], ...]
# By the type of a field, what a message calls it, and what it is in Python.
_EXPECTED: Dict[str, Tuple[str, Any]] = {
    "number": ("a number", (int, float)), "whole number": ("a number", (int, float)), "text": ("a text", str),
    "true or false": ("true or false", bool), "any": ("a value", object), "object": ("an object", dict),
    "list": ("a list", list), "map": ("an object", dict)}


class ReportError(Exception):
    """Something is wrong with what the user gave; the message is a complete sentence."""


def kind_of(value: Any) -> str:
    """What stands where something else is expected."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


class Field:
    """A field: of the class what it is, of an object its value, which is None (a list: empty) where the file has none.

    type: "number", "whole number", "text", "true or false", "any", "object", or "list of …" and "map of …" these.
    object: the class of the object, or of those in the list or map.          when: "always", "optional" or "null".
    figure, better: what tables call it, and whether "less" or "more" of it is better; "" for what is no figure.
    """

    def __init__(self, name: str, type: str, meaning: str, object: str = "", unit: str = "", when: str = "always",
                 figure: str = "", better: str = "") -> None:
        self.name, self.type, self.meaning, self.object, self.unit = name, type, meaning, object, unit
        self.when, self.figure, self.better = when, figure, better
        self.__doc__ = f"{meaning} [{unit}]" if unit else meaning

    def __get__(self, record: Any, owner: Any = None) -> Any:
        if record is None:
            return self
        values = record.__dict__
        if self.name not in values:
            values[self.name] = self._typed(self.type, record.data.get(self.name), record, (self.name,))
        return values[self.name]

    def __set__(self, record: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is what the program wrote; it cannot be set")

    def _typed(self, type: str, value: Any, record: "Record", place: _Place) -> Any:
        outer, _, inner = type.partition(" of ")
        expected, types = _EXPECTED[outer]
        if value is not None and (not isinstance(value, types) or isinstance(value, bool) and expected == "a number"):
            raise record.error_at(place, value, expected)
        if outer == "list":
            return (Records if inner == "object" else list)(
                self._typed(inner, one, record, (*place, i)) for i, one in enumerate(value or ()))
        if outer == "map":
            return {key: self._typed(inner, one, record, (*place, key)) for key, one in (value or {}).items()}
        if outer == "object":
            if value is None and len(place) > 1:
                raise record.error_at(place, value, expected)
            return None if value is None else OBJECTS[self.object](value, *record.at(place))
        if expected == "a number" and value is not None and not -sys.float_info.max <= value <= sys.float_info.max:
            raise record.error_at(place, value, "a finite number")
        return value


class Record:
    """An object of a result file. data: its JSON, as a dict; path: the file; fields(): what its fields mean.

    record.ms is None where the file does not have it, and record["ms"] then raises ReportError, also of a list with a null.
    Either does so for a value of another type. record.inner("step") is an object without values where record.step is None.
    """

    def __init__(self, data: Mapping[str, Any], path: Optional[Path] = None, place: _Place = ()) -> None:
        self.data, self.path, self._place = data, path, place

    def __getattr__(self, name: str) -> Any:
        near = difflib.get_close_matches(name, self.fields(), 1)
        raise AttributeError(f"{type(self).__name__} has no field {name!r}" + (f"; the nearest is {near[0]!r}" if near else ""))

    def __getitem__(self, name: str) -> Any:
        value = getattr(self, name)
        missing = [(name,)] if value is None else [(name, i) for i, one in enumerate(value) if one is None] \
            if isinstance(value, list) else []
        if missing:
            expected = _EXPECTED[self.fields()[name].type.split(" of ")[-1]][0]
            raise ReportError(f"{self.place_of(*missing[0])} is missing; {expected} is expected")
        return value

    def typed(self, name: str, type: str) -> Any:
        """A field of type "any" as what it has to be here."""
        return self.fields()[name]._typed(type, self.data.get(name), self, (name,))

    def inner(self, name: str) -> Any:
        return getattr(self, name) or OBJECTS[self.fields()[name].object]({}, *self.at((name,)))

    def at(self, place: _Place) -> "Tuple[Optional[Path], _Place]":
        """The file, and where in it this place of the object is."""
        return self.path, (*self._place, *place)

    def place_of(self, *place: Union[str, int]) -> str:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*self._place, *place))
        return (f"{self.path}: " if self.path else "") + steps.lstrip(".")

    def error_at(self, place: _Place, value: Any, expected: str) -> ReportError:
        return ReportError(f"{self.place_of(*place)} is {kind_of(value)}; {expected} is expected")

    @classmethod
    def fields(cls) -> Dict[str, Field]:
        """Its fields by their names in Python."""
        return {name: one for name, one in vars(cls).items() if isinstance(one, Field)}

    def as_row(self) -> Dict[str, Any]:
        """Its values that are no lists, those of inner objects with dotted names: "without.gain_ms"."""
        return {name: value for name, value, _ in self._values()}

    def _values(self) -> "Iterator[Tuple[str, Any, Field]]":
        for name, one in self.fields().items():
            value = getattr(self, name)
            if isinstance(value, Record):
                yield from ((f"{name}.{inner}", v, f) for inner, v, f in value._values())
            elif isinstance(value, dict):
                yield from ((f"{name}.{key}", v, one) for key, v in value.items() if not isinstance(v, (dict, list, Record)))
            elif value is not None and not isinstance(value, list):
                yield name, value, one

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Record) and self.data == other.data

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value, _ in self._values() if "." not in name]
        return f"<{type(self).__name__} {', '.join(values)}>"

    def _repr_html_(self) -> str:
        return _table(["", "", "unit", "meaning"],
                      [[name, _text(value), one.unit, one.meaning] for name, value, one in self._values()])


_Kind = TypeVar("_Kind", bound=Record)


class Records(List[_Kind]):
    """Objects of one kind. Notebooks show them as a table."""

    def rows(self) -> List[Dict[str, Any]]:
        return [one.as_row() for one in self]

    def frame(self) -> Any:
        """rows() as a pandas DataFrame."""
        return frame_of(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        return _table(names, [[_text(row.get(name)) for name in names] for row in rows])


def frame_of(rows: List[Dict[str, Any]]) -> Any:
    """Rows as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise ImportError("frame() needs pandas, which is not installed: `pip install pandas`, or use rows().") from None
    return pandas.DataFrame(rows)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
    return "\n".join(["<table>", line("th", header), *(line("td", row) for row in rows), "</table>"])


def declare(facts: Dict[str, Any]) -> Type[Record]:
    """The class of an object, from its name, meaning and fields. A name that is a keyword has a line behind it."""
    fields = [Field(**one) for one in facts["fields"]]
    OBJECTS[facts["name"]] = type(facts["name"], (Record,), {
        "__doc__": facts["meaning"], "__module__": __name__, **{one.name + "_" * iskeyword(one.name): one for one in fields}})
    return OBJECTS[facts["name"]]


OBJECTS: Dict[str, Type[Record]] = {}
_FACTS = json.loads(Path(__file__).with_name("records.json").read_text(encoding="utf-8"))
# By kind of file the version that the program writes, and the object that it holds.
FILES: Dict[str, Tuple[int, str]] = {kind: tuple(file) for kind, file in _FACTS["files"].items()}
globals().update({facts["name"]: declare(facts) for facts in _FACTS["objects"]})
