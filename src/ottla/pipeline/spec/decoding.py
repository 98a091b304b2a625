"""Decodes plain values to the classes of the model, and reports all problems at once.

msgspec has the types, the defaults and the JSON Schema of the model. Its own `convert` stops at the
first mistake and does not name the key, so this module walks the types that `msgspec.inspect`
returns.

Invariant: a returned object has only values of the declared types. A wrong value is replaced by an
empty one and there is a problem at its path, so that names and list indexes stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import inspect

from ottla.pipeline.spec.model import VARIABLES, Part
from ottla.pipeline.spec.problems import (
    Path,
    PipelineProblem,
    did_you_mean,
    listed,
    nearest,
    shown,
)
from ottla.pipeline.spec.yaml_document import Plain

P = TypeVar("P", bound=Part)
Substitute = Callable[[Path, str], str]
"""Replaces the variables of a text; returns the text unchanged if it cannot."""


class Decoded(NamedTuple, Generic[P]):
    """A decoded part with its problems."""

    part: P
    problems: list[PipelineProblem]
    replaced: list[Path]
    """The values that are wrong or missing, and were replaced by empty ones."""


def decode(value: object, kind: type[P], substitute: Substitute | None = None) -> Decoded[P]:
    """Return the object and the problems."""
    decoder = _Decoder(substitute)
    found = decoder.decoded(value, _type_of(kind), ())
    return Decoded(cast("P", found), decoder.problems, decoder.replaced)


@cache
def _type_of(kind: type[Part]) -> inspect.Type:
    return inspect.type_info(kind)


class Key(NamedTuple):
    """A key of a part, for the reference page."""

    name: str
    value: str
    required: bool
    has_variables: bool
    description: str
    example: str


def key_rows(kind: type[Part]) -> Iterator[Key]:
    """Yield the keys of a part with what the reference page shows of them."""
    for field in cast("inspect.StructType", _type_of(kind)).fields:
        plain, example, has_variables = _unwrapped(field.type)
        options = plain.types if isinstance(plain, inspect.UnionType) else (plain,)
        inner = [_unwrapped(one) for one in options]
        kinds = [one for one, _, _ in inner if not isinstance(one, inspect.NoneType)]
        names = [
            ", ".join(f"`{value}`" for value in one.values)
            if isinstance(one, inspect.LiteralType)
            else _form(one)
            for one in kinds
        ]
        contents = [
            _unwrapped(one.value_type if isinstance(one, inspect.DictType) else one.item_type)
            for one in kinds
            if isinstance(one, inspect.DictType | inspect.ListType)
        ]
        marked = has_variables or any(mark for _, _, mark in (*inner, *contents))
        metadata = cast("Any", field.type)
        schema: dict[str, Any] = getattr(metadata, "extra_json_schema", None) or {}
        own = kinds[0].cls.__doc__ if isinstance(kinds[0], inspect.StructType) else ""
        description = schema.get("description") or own or ""
        yield Key(
            field.encode_name,
            listed(dict.fromkeys(names), "or"),
            field.required,
            marked,
            description,
            example,
        )


class _Decoder:
    def __init__(self, substitute: Substitute | None) -> None:
        self.problems: list[PipelineProblem] = []
        self.replaced: list[Path] = []
        self._substitute = substitute

    def decoded(self, value: object, kind: inspect.Type, path: Path) -> Any:
        plain, example, has_variables = _unwrapped(kind)
        if isinstance(plain, inspect.AnyType):
            return _builtin(value)
        options = plain.types if isinstance(plain, inspect.UnionType) else (plain,)
        for option in options:
            inner, _, marked = _unwrapped(option)
            if _fits(value, inner):
                return self._matched(value, inner, path, has_variables or marked)
        self._report(path, _expected([_unwrapped(one)[0] for one in options], example, value))
        return _empty(plain)

    def _matched(self, value: object, kind: inspect.Type, path: Path, has_variables: bool) -> Any:
        match kind:
            case inspect.StructType():
                return self._struct(cast("Mapping[str, object]", value), kind, path)
            case inspect.DictType():
                items = cast("Mapping[str, object]", value).items()
                return {
                    name: self.decoded(one, kind.value_type, (*path, name)) for name, one in items
                }
            case inspect.ListType():
                listing = enumerate(cast("Iterable[object]", value))
                return [self.decoded(one, kind.item_type, (*path, at)) for at, one in listing]
            case inspect.LiteralType():
                text = _text(value)
                names = [str(one) for one in kind.values]
                if text in names:
                    return text
                known = listed(names, "or")
                hint = did_you_mean(text, names)
                self._report(path, f"{shown(text)} is not {known}{hint}")
                return _empty(kind)
            case inspect.StrType():
                return self._string(_text(value), path, has_variables)
            case _:
                return _builtin(value)

    def _string(self, text: str, path: Path, has_variables: bool) -> str:
        if has_variables:
            return text if self._substitute is None else self._substitute(path, text)
        return text

    def _struct(self, given: Mapping[str, object], kind: inspect.StructType, path: Path) -> Any:
        fields = {field.encode_name: field for field in kind.fields}
        values: dict[str, Any] = {}
        misspelt: set[str | None] = set()
        for name, value in given.items():
            field = fields.get(name)
            if field is None:
                near = nearest(name, fields)
                hint = f"did you mean {near}?" if near else f"use {listed(fields, 'or')}"
                if isinstance(value, Plain) and not value.text and near is None:
                    # {sql: SELECT a, b FROM c} has the key "b FROM c".
                    hint = "inside {…} a comma ends a value, so put a text with commas in quotes"
                what = f"unknown key; {hint}"
                self._report((*path, name), what, at_key=True)
                misspelt.add(near)
                continue
            before = len(self.problems)
            found = self.decoded(value, field.type, (*path, name))
            is_wrong = any(one.path == (*path, name) for one in self.problems[before:])
            if field.required or not is_wrong:
                values[field.name] = found
        for name, field in fields.items():
            if not field.required or name in given:
                continue
            plain, example, _ = _unwrapped(field.type)
            values[field.name] = _empty(plain)
            self.replaced.append((*path, name))
            if name not in misspelt:
                such = f"; add {name}: {example}" if example else ""
                self._report((*path, name), f"missing key{such}")
        return kind.cls(**values)

    def _report(self, path: Path, what: str, *, at_key: bool = False) -> None:
        self.problems.append(PipelineProblem(path, what, at_key=at_key))
        self.replaced.append(path)


def _empty(kind: inspect.Type) -> Any:
    """Return the value that stands for a wrong one."""
    match kind:
        case inspect.StructType():
            required = [field for field in kind.fields if field.required]
            return kind.cls(**{one.name: _empty(_unwrapped(one.type)[0]) for one in required})
        case inspect.DictType():
            return {}
        case inspect.ListType():
            return []
        case inspect.UnionType():
            return _empty(_unwrapped(kind.types[0])[0])
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 0
        case _:
            return ""


def _unwrapped(kind: inspect.Type) -> tuple[inspect.Type, str, bool]:
    """Return a type without its metadata, an example of it, and whether it may have variables."""
    if not isinstance(kind, inspect.Metadata):
        return kind, "", False
    metadata = cast("Any", kind)  # msgspec does not type the dictionaries
    schema: dict[str, Any] = metadata.extra_json_schema or {}
    example = _flow(schema["examples"][0]) if "examples" in schema else ""
    return kind.type, example, VARIABLES in (metadata.extra or ())


def _fits(value: object, kind: inspect.Type) -> bool:
    """Whether a value has the form of a type; what it contains is checked later."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, Mapping)
        case inspect.ListType():
            return isinstance(value, list | tuple)
        case inspect.StrType() | inspect.LiteralType():
            # A number without quotes is text where the model has text: `topic: 2024`.
            return isinstance(value, str) or (isinstance(value, Plain) and value.value is not None)
        case inspect.BoolType():
            return isinstance(_builtin(value), bool)
        case inspect.IntType():
            found = _builtin(value)
            return isinstance(found, int) and not isinstance(found, bool)
        case inspect.NoneType():
            return False  # null is a forgotten value: leave the key out instead
        case _:
            raise AssertionError(f"the model has a type without a form: {kind}")


def _expected(kinds: Iterable[inspect.Type], example: str, value: object) -> str:
    if isinstance(value, Plain) and value.value is None:
        return f"has no value{f': write a value such as {example}' if example else ''}"
    forms = dict.fromkeys(_form(one) for one in kinds if not isinstance(one, inspect.NoneType))
    such = f" such as {example}" if example else ""
    return f"expected {listed(forms, 'or')}{such}, found {_found(value)}"


def _form(kind: inspect.Type) -> str:
    match kind:
        case inspect.StructType() | inspect.DictType():
            return "a mapping"
        case inspect.ListType():
            return "a list"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case _:
            return "text"


def _found(value: object) -> str:
    found = _builtin(value)
    match found:
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            return str(found).lower()
        case int() | float():
            return str(found)
        case str():
            return f"the text {shown(found)}"
        case _:
            return f"a value of type {type(found).__name__}"


def _text(value: object) -> str:
    return value.text if isinstance(value, Plain) else str(value)


def _builtin(value: object) -> Any:
    """Return a value as Python has it: numbers and booleans instead of plain scalars."""
    match value:
        case Plain():
            return value.value
        case Mapping():
            items = cast("Mapping[str, object]", value).items()
            return {name: _builtin(one) for name, one in items}
        case list() | tuple():
            return [_builtin(one) for one in cast("list[object]", value)]
        case _:
            return value


def _flow(value: Any) -> str:
    """Return an example on one line, as YAML has it."""
    match value:
        case Mapping():
            items = cast("Mapping[str, Any]", value).items()
            return "{" + ", ".join(f"{name}: {_flow(one)}" for name, one in items) + "}"
        case list():
            return "[" + ", ".join(map(_flow, cast("list[Any]", value))) + "]"
        case _:
            return str(value)
