"""The JSON Schema of a pipeline file, for editors.

msgspec makes it from the model. What the types of the model cannot express is added here: a part
has exactly one kind, and the value of a setting may be a number without quotes.
"""

from typing import Any, Final

import msgspec

from ottla.pipeline.spec.model import (
    HOOK_KINDS,
    SINK_KINDS,
    SOURCE_KINDS,
    STEP_KINDS,
    Pipeline,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_KINDS: Final = {
    "Source": SOURCE_KINDS,
    "Step": STEP_KINDS,
    "Sink": SINK_KINDS,
    **dict.fromkeys(("Hook", "LagHook", "ExpectationHook"), HOOK_KINDS),
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a pipeline file."""
    found = msgspec.json.schema(Pipeline)
    definitions: dict[str, dict[str, Any]] = found["$defs"]
    for name, kinds in _KINDS.items():
        definitions[name]["oneOf"] = [{"required": [kind]} for kind in kinds]
    for definition in definitions.values():
        for field in definition.get("properties", {}).values():
            _drop_null(field)
            if field.get("additionalProperties") == {"type": "string"}:
                field["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    return {"$schema": DIALECT, "title": "Ottla pipeline", **found}


def _drop_null(field: dict[str, Any]) -> None:
    """Remove null: in a file, a key is left out instead."""
    options: list[dict[str, Any]] = field.get("anyOf", [])
    kept = [one for one in options if one != {"type": "null"}]
    if len(kept) == len(options):
        return
    if len(kept) == 1:
        del field["anyOf"]
        field.update(kept[0])
    else:
        field["anyOf"] = kept
    if field.get("default", "") is None:
        del field["default"]
