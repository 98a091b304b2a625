"""The message schemas are consistent."""

from collections.abc import Iterator

from cases import each_case
from ottla.protocol.apis import API_OF_KEY, API_VERSIONS
from ottla.protocol.message import Api, Message
from ottla.protocol.schema import NEVER, Field, Kind, Struct, Versions
from protocol_values import MESSAGES, STORED, name_of

every_message = each_case("cls", MESSAGES, ids=name_of)
every_api = each_case("api", API_OF_KEY.values(), ids=lambda api: api.name)


@every_api
def test_every_api_has_a_request_and_a_response(api: Api) -> None:
    assert API_OF_KEY[api.key] is api
    for cls in (api.request, api.response):
        assert cls.API is api
        assert api.versions == cls.VERSIONS
        assert api.flexible == cls.FLEXIBLE
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"


@every_api
def test_header_versions_of_every_api(api: Api) -> None:
    for version in api.versions:
        flexible = version in api.flexible
        assert api.request_header_version(version) == (2 if flexible else 1)
        tagged = flexible and api is not API_VERSIONS
        assert api.response_header_version(version) == (1 if tagged else 0)


def test_advertised_versions_differ_for_two_apis() -> None:
    differing = {
        api.name: str(api.advertised)
        for api in API_OF_KEY.values()
        if api.advertised != api.versions
    }
    assert differing == {"Produce": "0-13", "InitProducerId": "0-5"}


def structures(cls: type[Struct]) -> Iterator[type[Struct]]:
    yield cls
    for field in cls.FIELDS:
        if field.struct is not None:
            yield from structures(field.struct)


def covers(outer: Versions, inner: Versions) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


def tagged_fields(cls: type[Struct]) -> list[Field]:
    return [field for field in cls.FIELDS if field.tag is not None]


@every_message
def test_tags(cls: type[Message]) -> None:
    for struct in structures(cls):
        for field in tagged_fields(struct):
            assert covers(cls.FLEXIBLE, field.tagged), "a tag where no version has tags is lost"
            assert covers(field.versions, field.tagged)
            assert not field.required, "a field that may be left out needs a default"
        for version in cls.VERSIONS:
            tags = [field.tag for field in tagged_fields(struct) if version in field.tagged]
            assert len(tags) == len(set(tags)), struct
            assert not tags or max(tag for tag in tags if tag is not None) < 128


@every_message
def test_defaults_can_be_encoded(cls: type[Message]) -> None:
    for struct in structures(cls):
        for field in struct.FIELDS:
            if field.default is None:
                assert field.nullable != NEVER or field.kind is Kind.STRUCT, (struct, field)
            if field.kind is Kind.STRUCT and field.tag is not None:
                assert field.struct is not None
                assert not any(inner.required for inner in field.struct.FIELDS)
            assert (field.kind is Kind.ARRAY) == (field.element is not None)
            assert (field.kind is Kind.STRUCT or field.element is Kind.STRUCT) == (
                field.struct is not None
            )


@every_message
def test_field_missing_in_some_version_has_default(cls: type[Message]) -> None:
    """Otherwise a reader of that version would use an arbitrary value."""

    def check(struct: type[Struct], present: list[int]) -> None:
        for field in struct.FIELDS:
            if any(version not in field.versions for version in present):
                assert not field.required, (struct, field)
            if field.struct is not None:
                check(field.struct, [v for v in present if v in field.versions])

    check(cls, list(cls.VERSIONS))


def test_number_of_messages() -> None:
    assert len(API_OF_KEY) == 76
    assert len(STORED) == 21


@each_case(
    ("text", "versions"),
    [("3", (3, 3)), ("0-4", (0, 4)), ("2+", (2, 0x7FFF)), ("none", (0, -1))],
)
def test_ranges_of_versions(text: str, versions: tuple[int, int]) -> None:
    parsed = Versions.parse(text)
    assert parsed == Versions(*versions)
    assert str(parsed) == text
    assert (3 in parsed) is (text != "none")
    assert "3" not in parsed
    if text != "2+":
        assert [v for v in range(-2, 10) if v in parsed] == list(parsed)
