#!/usr/bin/env python3
"""Writes schemas/generated.jsonl and tool-lists/*.json, and checks the labels of all schemas.

generate.py            writes the generated files anew
generate.py --check    fails if a committed file differs from what would be written, or if a label is wrong

Labels are checked with the Python package `jsonschema`, which shares no code with the validator that dacapo uses.
The numbers come from a generator of our own with a fixed seed, so the files do not depend on the version of Python.
"""

import json
import pathlib
import sys

import jsonschema.validators

HERE = pathlib.Path(__file__).parent
SEED = 20_260_203
SCHEMAS = 96
DEPTH_MAX = 2

NAMES = """account amount author body branch category city color comment count country currency customer date depth
duration email end event fields file filter folder format group height host id image index items key kind label
language level limit line list mode model name note number offset options order owner page path period phone place
plan port price priority product project query range rate reason region report role room rule scope score sender
sequence service session size sort source start status step store subject tag target task team template text time
title token topic type unit url user value vendor version width zone""".split()
WORDS = """alpha amber basic birch cedar cobalt daily delta draft eager empty final first green hazel heavy indigo
inner ivory large light linen lunar maple medium metal minor month north ocean olive open outer paper pearl plain
prime quick quiet rapid ready river round ruby sharp silver small solar south stone swift tidal urban valid violet
week west white winter young""".split()
DRAFTS = [
    None,
    None,
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
]


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return (mixed ^ (mixed >> 31)) % bound

    def chance(self, percent):
        return self.below(100) < percent

    def choice(self, items):
        return items[self.below(len(items))]

    def several(self, items, count):
        items = list(items)
        return [items.pop(self.below(len(items))) for _ in range(count)]

    def between(self, low, high):
        return low + self.below(high - low + 1)


class Made:
    """A schema, a function that makes valid values, and values that it refuses.

    A wrong value is (keyword that refuses it, value, whether TypeScript's types refuse it too).
    """

    def __init__(self, schema, valid, wrong):
        self.schema = schema
        self.valid = valid
        self.wrong = wrong


def text(random):
    return " ".join(random.several(WORDS, random.between(1, 3)))


def plain_text(random, _depth):
    schema = {"type": "string"}
    if random.chance(25):
        schema["format"] = random.choice(["date", "date-time", "email", "uri", "uuid"])
    return Made(schema, lambda: text(random), [("type", random.between(0, 99), True)])


def bounded_text(random, _depth):
    low, high = random.between(1, 3), random.between(20, 40)
    schema = {"type": "string", "minLength": low, "maxLength": high}
    wrong = [("minLength", "", False), ("maxLength", "x" * (high + 1), False), ("type", None, True)]
    return Made(schema, lambda: random.choice(WORDS), wrong)


def patterned_text(random, _depth):
    prefix = random.choice("abcdefgh")
    schema = {"type": "string", "pattern": f"^{prefix}-[0-9]+$"}
    wrong = [("pattern", f"{prefix}-x", False), ("type", {"id": 1}, True)]
    return Made(schema, lambda: f"{prefix}-{random.between(0, 999)}", wrong)


def choice_of_text(random, _depth):
    words = random.several(WORDS, random.between(2, 5))
    schema = {"enum": words} if random.chance(20) else {"type": "string", "enum": words}
    if random.chance(30):
        schema["default"] = words[0]
    return Made(schema, lambda: random.choice(words), [("enum", "none-of-these", True)])


def constant(random, _depth):
    value = random.choice([random.choice(WORDS), random.between(1, 9), True])
    return Made({"const": value}, lambda: value, [("const", [value], True)])


def integer(random, _depth):
    low, high = random.between(-5, 5), random.between(10, 1000)
    schema = {"type": "integer", "minimum": low, "maximum": high}
    wrong = [("minimum", low - 1, False), ("maximum", high + 1, False), ("type", 7.5, False), ("type", "7", True)]
    return Made(schema, lambda: random.between(low, high), wrong)


def number(random, _depth):
    if random.chance(30):
        schema = {"type": "number", "multipleOf": 0.5}
        return Made(schema, lambda: random.between(0, 40) / 2, [("multipleOf", 0.3, False), ("type", "0.5", True)])
    schema = {"type": "number", "exclusiveMinimum": 0}
    return Made(schema, lambda: random.between(1, 99) / 4, [("exclusiveMinimum", 0, False), ("type", [1], True)])


def boolean(random, _depth):
    return Made({"type": "boolean"}, lambda: random.chance(50), [("type", "true", True)])


def nullable(random, depth):
    if random.chance(50):
        kind, value, wrong = random.choice(
            [("string", lambda: text(random), 5), ("number", lambda: random.between(0, 9), "5")]
        )
        valid = lambda: None if random.chance(50) else value()
        return Made({"type": [kind, "null"]}, valid, [("type", wrong, True), ("type", False, True)])
    inner = leaf(random, depth)
    valid = lambda: None if random.chance(50) else inner.valid()
    wrong = [("anyOf", value, by_type) for _, value, by_type in inner.wrong if value is not None]
    return Made({"anyOf": [inner.schema, {"type": "null"}]}, valid, wrong)


def array(random, depth):
    inner = any_kind(random, depth + 1)
    high = random.between(2, 4)
    schema = {"type": "array", "items": inner.schema, "maxItems": high}
    valid = lambda: [inner.valid() for _ in range(random.between(0, 2))]
    wrong = [(keyword, [value], by_type) for keyword, value, by_type in inner.wrong]
    wrong += [("type", {"0": 1}, True), ("maxItems", [inner.valid() for _ in range(high + 1)], False)]
    return Made(schema, valid, wrong)


def pair(random, depth):
    first, second = leaf(random, depth), leaf(random, depth)
    schema = {"type": "array", "prefixItems": [first.schema, second.schema], "items": False, "minItems": 2}
    valid = lambda: [first.valid(), second.valid()]
    wrong = [("minItems", [first.valid()], True), ("items", [*valid(), 1], True)]
    wrong += [(keyword, [value, second.valid()], by_type) for keyword, value, by_type in first.wrong[:2]]
    return Made(schema, valid, wrong)


def mapping(random, depth):
    inner = leaf(random, depth)
    schema = {"type": "object", "additionalProperties": inner.schema}
    valid = lambda: {name: inner.valid() for name in random.several(WORDS, random.between(0, 2))}
    wrong = [(keyword, {"any": value}, by_type) for keyword, value, by_type in inner.wrong]
    return Made(schema, valid, [*wrong, ("type", [], True)])


def names_by_pattern(random, depth):
    inner = leaf(random, depth)
    schema = {"type": "object", "patternProperties": {"^x-": inner.schema}, "additionalProperties": False}
    valid = lambda: {f"x-{word}": inner.valid() for word in random.several(WORDS, random.between(0, 2))}
    wrong = [(keyword, {"x-a": value}, by_type) for keyword, value, by_type in inner.wrong]
    return Made(schema, valid, [*wrong, ("additionalProperties", {"y-a": inner.valid()}, False)])


def union(random, depth):
    """Objects that a constant tells apart."""
    kinds = random.several(WORDS, random.between(2, 3))
    members = [(kind, random.choice(NAMES), leaf(random, depth)) for kind in kinds]
    keyword = random.choice(["oneOf", "anyOf"])
    variants = [
        {
            "type": "object",
            "properties": {"variant": {"const": kind}, name: inner.schema},
            "required": ["variant", name],
            "additionalProperties": False,
        }
        for kind, name, inner in members
    ]

    def valid():
        kind, name, inner = random.choice(members)
        return {"variant": kind, name: inner.valid()}

    kind, name, inner = members[0]
    wrong = [(keyword, {"variant": kind, name: value}, by_type) for _, value, by_type in inner.wrong]
    wrong += [(keyword, {"variant": kind}, True), (keyword, {"variant": "other", name: inner.valid()}, True)]
    return Made({keyword: variants}, valid, wrong)


def record(random, depth, count=None):
    names = random.several(NAMES, count or random.between(1, 3))
    members = {name: any_kind(random, depth + 1) for name in names}
    required = [name for name in names if random.chance(60)] or names[:1]
    closed = random.chance(50)
    schema = {"type": "object", "properties": {name: made.schema for name, made in members.items()}}
    schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False

    def valid():
        return {name: made.valid() for name, made in members.items() if name in required or random.chance(50)}

    wrong = []
    for name, made in members.items():
        rest = {other: members[other].valid() for other in required if other != name}
        wrong += [(keyword, {**rest, name: value}, by_type) for keyword, value, by_type in made.wrong]
    missing = random.choice(required)
    wrong.append(("required", {name: members[name].valid() for name in required if name != missing}, True))
    if closed:
        wrong.append(("additionalProperties", {**valid(), "unknown_field": 1}, True))
    return Made(schema, valid, wrong)


LEAVES = [plain_text, bounded_text, patterned_text, choice_of_text, constant, integer, number, boolean]
BRANCHES = [nullable, array, pair, mapping, names_by_pattern, union, record]


def leaf(random, depth):
    return random.choice(LEAVES)(random, depth)


def any_kind(random, depth):
    if depth > DEPTH_MAX or random.chance(55):
        return leaf(random, depth)
    return random.choice(BRANCHES)(random, depth)


def describe(random, schema):
    """Texts as tools have them; they change nothing."""
    for property_schema in schema["properties"].values():
        if random.chance(60):
            property_schema["description"] = f"The {text(random)} to use"


def move_to_definition(random, schema):
    """Replaces a property's schema by a reference, and another one by the same."""
    name = random.choice(list(schema["properties"]))
    schema["$defs"] = {"Shared": schema["properties"][name]}
    schema["properties"][name] = {"$ref": "#/$defs/Shared"}


def move_to_composition(random, schema):
    """Moves a property with its requirement into an allOf."""
    name = random.choice(list(schema["properties"]))
    part = {"properties": {name: schema["properties"].pop(name)}}
    if name in schema["required"]:
        schema["required"].remove(name)
        part["required"] = [name]
    if not schema["required"]:
        del schema["required"]
    schema["allOf"] = [part]


def to_draft_07(schema):
    """Tuples as draft-07 has them, and its name for definitions."""
    if isinstance(schema, list):
        return [to_draft_07(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: to_draft_07(value) for key, value in schema.items()}
    if isinstance(schema.get("prefixItems"), list):
        schema["additionalItems"] = schema.pop("items")
        schema["items"] = schema.pop("prefixItems")
    if "$defs" in schema:
        schema["definitions"] = schema.pop("$defs")
    if schema.get("$ref") == "#/$defs/Shared":
        schema["$ref"] = "#/definitions/Shared"
    return schema


def generated_schema(random, number):
    made = record(random, 0, random.between(2, 4))
    schema = made.schema
    describe(random, schema)
    form = random.below(4)
    if form == 1:
        move_to_definition(random, schema)
    # A closed object and an allOf beside it refuse each other's properties.
    elif form == 2 and "additionalProperties" not in schema:
        move_to_composition(random, schema)
    draft = random.choice(DRAFTS)
    is_draft_07 = draft is not None and "draft-07" in draft
    if is_draft_07:
        schema = to_draft_07(schema)
    if draft is not None:
        schema = {"$schema": draft, **schema}
    line = {"id": f"g{number:02}", "schema": schema, "valid": distinct(made.valid() for _ in range(3))}
    wrong = random.several(made.wrong, min(len(made.wrong), 9))
    case = lambda keyword, value: {"keyword": renamed(keyword, is_draft_07), "value": value}
    line["invalid"] = [case(keyword, value) for keyword, value, by_type in wrong if by_type][:5]
    line["invalid_beyond_types"] = [case(keyword, value) for keyword, value, by_type in wrong if not by_type][:3]
    return line


def renamed(keyword, is_draft_07):
    return "additionalItems" if is_draft_07 and keyword == "items" else keyword


def distinct(values):
    return list({json.dumps(value): value for value in values}.values())


def tool_lists(catalog):
    """The catalogue's tools, each domain in the shape of one provider."""
    domains = list(dict.fromkeys(tool["domain"] for tool in catalog))
    shapes = [("openai-chat", chat), ("openai-responses", responses), ("anthropic", anthropic), ("mcp", mcp)]
    lists = {}
    for index, (name, shape) in enumerate(shapes):
        tools = [shape(tool) for tool in catalog if domains.index(tool["domain"]) % len(shapes) == index]
        lists[name] = {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}} if name == "mcp" else tools
    return lists


def chat(tool):
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def responses(tool):
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
        "strict": False,
    }


def anthropic(tool):
    return {"name": tool["name"], "description": tool["description"], "input_schema": tool["input_schema"]}


def mcp(tool):
    return {
        "name": tool["name"],
        "title": tool["name"].replace("_", " ").capitalize(),
        "description": tool["description"],
        "inputSchema": tool["input_schema"],
        "annotations": {"readOnlyHint": not tool["name"].startswith(("create", "delete", "set", "send", "post"))},
    }


def wrong_labels(line):
    """The labels of one schema with which the validator does not agree."""
    schema = line["schema"]
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    validator = kind(schema)
    for value in line["valid"]:
        if not validator.is_valid(value):
            yield f"{line['id']}: labelled valid: {json.dumps(value)}"
    for case in line["invalid"] + line.get("invalid_beyond_types", []):
        # What a schema that is just `false` refuses has no keyword, and is labelled "false".
        keywords = {error.validator or "false" for error in validator.iter_errors(case["value"])}
        if case["keyword"] not in keywords:
            yield f"{line['id']}: labelled {case['keyword']}, refused by {keywords}: {json.dumps(case['value'])}"


def read_lines(path):
    return [json.loads(line) for line in (HERE / path).read_text().splitlines()]


def lines_of(values):
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def main():
    random = Random(SEED)
    generated = [generated_schema(random, number) for number in range(SCHEMAS)]
    files = {"schemas/generated.jsonl": lines_of(generated)}
    for name, tools in tool_lists(read_lines("search/catalog.jsonl")).items():
        files[f"tool-lists/{name}.json"] = json.dumps(tools, ensure_ascii=False, indent=1) + "\n"

    mistakes = [wrong for line in [*read_lines("schemas/written.jsonl"), *generated] for wrong in wrong_labels(line)]
    for path, content in files.items():
        path = HERE / path
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != content:
                mistakes.append(f"{path} differs from what generate.py writes")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
    if mistakes:
        sys.exit("\n".join(mistakes))


main()
