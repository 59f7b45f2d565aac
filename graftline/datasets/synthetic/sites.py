"""What a snippet offers to be filled in: the names in it, by what they stand for."""

import re
from collections.abc import Callable, Iterator, Mapping

from graftline.astgrep.binding import Language, Node, SgNode, Tree
from graftline.datasets.synthetic.family import Role, Site

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
_NUMBER = re.compile(r"[1-9]\d{0,5}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{1,30}")
_FIXED = frozenset({"super", "self", "cls", "this", "constructor", "import", "Enclosing"})
"""Names that mean the same in all code, or that `datasets.language` writes round a member."""
_MODULE = re.compile(r"[A-Za-z_][\w./@-]*", re.ASCII)


def sites_in(tree: Tree) -> list[Site]:
    """Return the named places of `tree` in the order of the text, each once."""
    readers = _READERS[tree.language]
    sites: dict[Site, None] = {}
    for node in tree.root.walk():
        reader = readers.get(node.kind)
        if reader is not None and node.is_named:
            sites.update(dict.fromkeys(site for site in reader(node) if _is_usable(site)))
    # a property in short form is a variable and a key at once: neither can be renamed alone
    short = {tree.of(node) for node in tree.root.walk() if node.kind.startswith("shorthand_property_identifier")}
    return [site for site in sites if site.role not in ("variable", "class", "keyword") or site.name not in short]


def words_of(tree: Tree) -> list[tuple[int, str]]:
    """Return the identifiers of `tree` with where they start."""
    leaves = (node for node in tree.root.walk() if node.kind.endswith("identifier") and not node.children)
    return [(node.start, tree.of(node)) for node in leaves]


def _is_usable(site: Site) -> bool:
    if site.name in _FIXED or site.name.startswith("__"):
        return False
    shape = {"class": _CLASS, "number": _NUMBER, "string": _WORDS, "module": _MODULE}.get(site.role, _NAME)
    return shape.fullmatch(site.name) is not None and len(site.name) > (site.role in ("attribute", "variable"))


def _text(node: SgNode | None) -> str:
    return "" if node is None else node.text()


def _plain(node: SgNode | None) -> str:
    """Return the text of `node` if it is one name, which needs no look at what it is."""
    text = _text(node)
    return text if _NAME.fullmatch(text) else ""


def _values(arguments: SgNode) -> list[SgNode]:
    return [child for child in arguments.children() if child.is_named() and "comment" not in child.kind()]


def _is_statement(node: Node) -> bool:
    return node.parent is not None and node.parent.kind == "expression_statement"


def _call_site(node: Node, name: str, owner: SgNode | None, values: list[SgNode], is_method: bool) -> Site:
    keywords = tuple(_text(value.field("name")) for value in values if value.kind() == "keyword_argument")
    role: Role = "method" if is_method else "function"
    return Site(role, name, _plain(owner), arguments=len(values), keywords=keywords, is_statement=_is_statement(node))


def _python_call(node: Node) -> Iterator[Site]:
    function, arguments = node.handle.field("function"), node.handle.field("arguments")
    if function is None or arguments is None or arguments.kind() != "argument_list":
        return
    member = function.field("attribute")
    name = _text(member) if member is not None else _plain(function)
    if not name:
        return
    values = _values(arguments)
    yield _call_site(node, name, function.field("object"), values, member is not None)
    if member is None:
        yield Site("class", name, key="constructed", arguments=len(values))
    for value in values:
        if value.kind() == "keyword_argument":
            is_true = _text(value.field("value")) == "True"
            owner = name if member is None else ""
            yield Site("keyword", _text(value.field("name")), owner, key="true" if is_true else "")


def _javascript_call(node: Node) -> Iterator[Site]:
    function, arguments = node.handle.field("function"), node.handle.field("arguments")
    if function is None or arguments is None or arguments.kind() != "arguments":
        return
    member = function.field("property")
    name = _plain(member) if member is not None else _plain(function)
    if not name:
        return
    values = _values(arguments)
    yield _call_site(node, name, function.field("object"), values, member is not None)
    for pair in (pair for value in values if value.kind() == "object" for pair in _values(value)):
        if pair.kind() == "pair":
            is_true = _text(pair.field("value")) == "true"
            owner = name if member is None else ""
            yield Site("keyword", _text(pair.field("key")), owner, key="true" if is_true else "")
    if name == "require" and len(values) == 1:
        yield from _module(values[0])


def _java_call(node: Node) -> Iterator[Site]:
    arguments, owner = node.handle.field("arguments"), node.handle.field("object")
    name = _plain(node.handle.field("name"))
    if name and arguments is not None:
        yield _call_site(node, name, owner, _values(arguments), owner is not None)


def _member(owner: str, name: str) -> Callable[[Node], Iterator[Site]]:
    def read(node: Node) -> Iterator[Site]:
        parent = node.parent
        if parent is None or parent.kind not in ("call", "call_expression") or node.index != 0:
            yield Site("attribute", _plain(node.handle.field(name)), _plain(node.handle.field(owner)))

    return read


def _constructor(field: str) -> Callable[[Node], Iterator[Site]]:
    def read(node: Node) -> Iterator[Site]:
        constructed = node.handle.field(field)
        if constructed is None:
            return
        if constructed.kind() == "generic_type":
            name, arguments = [*_values(constructed), None][:2]
            key = _text(arguments).removeprefix("<").removesuffix(">")
            yield Site("class", _text(name), key=key or "constructed")
        else:
            yield Site("class", _plain(constructed), key="constructed")

    return read


def _definition(node: Node) -> Iterator[Site]:
    name, parameters, body = (node.handle.field(field) for field in ("name", "parameters", "body"))
    plain = tuple(
        _text(node.field("name") or node.field("pattern") if node.kind() != "identifier" else node)
        for node in (_values(parameters) if parameters is not None else ())
        if node.kind() in ("identifier", "formal_parameter", "required_parameter", "default_parameter")
    )
    names = tuple(name for name in plain if _NAME.fullmatch(name) and name not in ("self", "cls"))
    first = next(iter(_values(body)), None) if body is not None else None
    is_docstring = first is not None and first.text().startswith(('"', "'", 'r"'))
    key = "" if first is None or is_docstring else first.kind()
    yield Site("definition", _plain(name), names[0] if names else "", key, len(plain), names)
    yield from (Site("variable", name) for name in names)


def _field(role: Role, field: str, key: str = "") -> Callable[[Node], Iterator[Site]]:
    def read(node: Node) -> Iterator[Site]:
        yield Site(role, _plain(node.handle.field(field)), key=key)

    return read


def _literal(role: Role) -> Callable[[Node], Iterator[Site]]:
    def read(node: Node) -> Iterator[Site]:
        is_argument = node.parent is not None and node.parent.kind in ("argument_list", "arguments")
        yield Site(role, node.handle.text(), key="argument" if is_argument else "")

    return read


def _decorator(node: Node) -> Iterator[Site]:
    yield Site("decorator", _plain(node.handle.field("name")) or node.handle.text().removeprefix("@").partition("(")[0])


def _type_name(node: Node) -> Iterator[Site]:
    parent = node.parent
    is_local = parent is not None and parent.kind == "local_variable_declaration"
    yield Site("type", node.handle.text(), key="local" if is_local else "")
    yield Site("class", node.handle.text())


def _local(node: Node) -> Iterator[Site]:
    kind = node.handle.field("type")
    if kind is not None and kind.kind() in ("integral_type", "boolean_type", "floating_point_type"):
        yield Site("type", kind.text(), key="local")


def _python_type(node: Node) -> Iterator[Site]:
    yield Site("type", node.handle.text())


def _module(source: SgNode | None) -> Iterator[Site]:
    if source is not None and source.kind() == "string":
        yield Site("module", source.text()[1:-1])


def _python_import(node: Node) -> Iterator[Site]:
    for name in _values(node.handle):
        if name.kind() == "dotted_name":
            yield Site("module", name.text(), key="whole")


def _python_import_from(node: Node) -> Iterator[Site]:
    module, *names = _values(node.handle)
    yield Site("module", module.text())
    if len(names) == 1 and names[0].kind() == "dotted_name":
        yield Site("imported", names[0].text(), module.text())


def _javascript_import(node: Node) -> Iterator[Site]:
    source = node.handle.field("source")
    yield from _module(source)
    clause = next((child for child in _values(node.handle) if child.kind() == "import_clause"), None)
    inner = _values(clause) if clause is not None else []
    if source is None or len(inner) != 1:
        return
    if inner[0].kind() == "identifier":
        yield Site("imported", inner[0].text(), source.text()[1:-1], key="default")
    elif inner[0].kind() == "named_imports" and len(names := _values(inner[0])) == 1:
        yield Site("imported", names[0].text(), source.text()[1:-1])


def _javascript_variable(node: Node) -> Iterator[Site]:
    name, value = node.handle.field("name"), node.handle.field("value")
    yield Site("variable", _plain(name))
    if value is not None and (match := re.fullmatch(r"require\(['\"]([^'\"]+)['\"]\)", value.text())):
        yield Site("imported", _plain(name), match[1], key="required")


def _java_import(node: Node) -> Iterator[Site]:
    for name in _values(node.handle):
        yield Site("module", name.text())
        package, _, last = name.text().rpartition(".")
        yield Site("imported", last, package)


_JAVASCRIPT: Mapping[str, Callable[[Node], Iterator[Site]]] = {
    "call_expression": _javascript_call,
    "member_expression": _member("object", "property"),
    "new_expression": _constructor("constructor"),
    "function_declaration": _definition,
    "method_definition": _definition,
    "variable_declarator": _javascript_variable,
    "class_declaration": _field("class", "name"),
    "type_identifier": _type_name,
    "decorator": _decorator,
    "number": _literal("number"),
    "string_fragment": _literal("string"),
    "import_statement": _javascript_import,
}
_READERS: Mapping[Language, Mapping[str, Callable[[Node], Iterator[Site]]]] = {
    "python": {
        "call": _python_call,
        "attribute": _member("object", "attribute"),
        "function_definition": _definition,
        "class_definition": _field("class", "name"),
        "assignment": _field("variable", "left"),
        "for_statement": _field("variable", "left"),
        "decorator": _decorator,
        "type": _python_type,
        "integer": _literal("number"),
        "string_content": _literal("string"),
        "import_statement": _python_import,
        "import_from_statement": _python_import_from,
    },
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "java": {
        "method_invocation": _java_call,
        "field_access": _member("object", "field"),
        "object_creation_expression": _constructor("type"),
        "method_declaration": _definition,
        "local_variable_declaration": _local,
        "variable_declarator": _field("variable", "name"),
        "formal_parameter": _field("variable", "name"),
        "class_declaration": _field("class", "name"),
        "type_identifier": _type_name,
        "marker_annotation": _decorator,
        "decimal_integer_literal": _literal("number"),
        "string_fragment": _literal("string"),
        "import_declaration": _java_import,
    },
}
