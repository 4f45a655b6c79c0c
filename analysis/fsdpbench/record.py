"""Objects of result files as Python values: their fields are attributes. fields.py declares them."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple, TypeVar


class Field:
    """A field: of the class what it is, of an object its value, which is None (a list: empty) where the file has none.

    type: "number", "whole number", "text", "true or false", "any", "object", or "list of …" and "map of …" these.
    object: the class of the object, or of those in the list or map.
    figure, better: what tables call it, and whether "less" or "more" of it is better; "" for what is no figure.
    """

    def __init__(self, type: str, object: str, unit: str, meaning: str, figure: str = "", better: str = "",
                 name: str = "") -> None:
        self.type, self.object, self.unit, self.meaning = type, object, unit, meaning
        self.figure, self.better, self.name = figure, better, name
        self.__doc__ = f"{meaning} [{unit}]" if unit else meaning

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = self.name or name
        self._module = owner.__module__

    def __get__(self, record: Any, owner: Any = None) -> Any:
        return self if record is None else self._typed(self.type, record.data.get(self.name))

    def __set__(self, record: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is what the program wrote; it cannot be set")

    def _typed(self, type: str, value: Any) -> Any:
        if type == "object":
            return None if value is None else getattr(importlib.import_module(self._module), self.object)(value)
        if type.startswith("list of "):
            inner = type[len("list of "):]
            return (Records if inner == "object" else list)(self._typed(inner, one) for one in value or [])
        if type.startswith("map of "):
            return {key: self._typed(type[len("map of "):], one) for key, one in (value or {}).items()}
        return value


def field(type: str, object: str, unit: str, meaning: str, figure: str = "", better: str = "", name: str = "") -> Any:
    """A Field, which type checkers take for its value."""
    return Field(type, object, unit, meaning, figure, better, name)


class Record:
    """An object of a result file. data: its JSON, as a dict; fields(): what its fields mean."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    @classmethod
    def fields(cls) -> Dict[str, Field]:
        """Its fields by their names in Python."""
        return {name: one for kind in reversed(cls.__mro__) for name, one in vars(kind).items() if isinstance(one, Field)}

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
