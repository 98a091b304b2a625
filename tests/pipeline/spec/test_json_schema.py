import json
from typing import Any

from ottla.pipeline.spec.json_schema import json_schema
from ottla.pipeline.spec.model import SINK_KINDS, SOURCE_KINDS, STEP_KINDS


def definitions() -> dict[str, Any]:
    return json.loads(json.dumps(json_schema()))["$defs"]


def test_every_key_is_described() -> None:
    found = definitions()
    assert {"Pipeline", "Source", "Step", "Sink", "Expectation", "Profile"} <= found.keys()
    for name, part in found.items():
        assert part["description"], name
        assert part["additionalProperties"] is False, name
        for key, field in part["properties"].items():
            assert "description" in field or "$ref" in field, f"{name}.{key}"


def test_part_has_exactly_one_kind() -> None:
    found = definitions()
    for name, kinds in (("Source", SOURCE_KINDS), ("Step", STEP_KINDS), ("Sink", SINK_KINDS)):
        assert [one["required"] for one in found[name]["oneOf"]] == [[kind] for kind in kinds]
        assert set(kinds) <= found[name]["properties"].keys()


def test_keys_are_those_of_yaml_and_not_null() -> None:
    found = definitions()
    assert found["Sink"]["required"] == ["from"]
    assert "null" not in json.dumps(found)
    assert found["Source"]["properties"]["topic"]["anyOf"] == [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
    ]
    values = found["Pipeline"]["properties"]["spark"]["additionalProperties"]
    assert values == {"type": ["string", "number", "boolean"]}
