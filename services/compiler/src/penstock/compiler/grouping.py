"""A SELECT with GROUP BY, aggregates or DISTINCT taken apart: keys, aggregates and their arguments, and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from penstock.compiler import functions
from penstock.compiler.diagnostics import refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.positions import Text, extent
from penstock.compiler.relations import Relation, column
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource
from penstock.compiler.windows import Hop, Inherited, Session, Tumble, Window, is_window, read_window
from penstock.spark import FunctionKind

WINDOW_MARK: Final = "_windowed"
"""Stands in a tree for the window of the row."""

Named = tuple[tuple[str, exp.Expr], ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """What is computed. Keys and arguments are of the rows read, aggregates of arguments, results of keys and these.

    `window` is none of the keys. A result holds `WINDOW_MARK` where the user wrote the window.
    """

    keys: Named
    window: Window | None
    window_keys: frozenset[str]
    """The keys that tell the windows of the rows apart, which they were of already."""
    arguments: Named
    aggregates: Named
    results: Named
    having: exp.Expr | None


def is_grouped(select: exp.Select, values: Sequence[exp.Expr], kinds: Mapping[str, FunctionKind]) -> bool:
    """Whether a SELECT has GROUP BY or aggregates."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(True for value in values for _ in _aggregates_in(value, kinds))


def group(
    select: exp.Select,
    projections: Named,
    source: SelectSource,
    kinds: Mapping[str, FunctionKind],
    text: Text,
) -> Grouping:
    """Takes a SELECT with GROUP BY or aggregates apart."""
    return _Grouper(source, kinds, text).group(select, projections)


def distinct(projections: Named, source: SelectSource, text: Text) -> Grouping:
    """A SELECT DISTINCT is a GROUP BY of everything."""
    grouper = _Grouper(source, {}, text)
    trees = [grouper.spark(value) for _, value in projections]
    keys = tuple(grouper.add_key(tree) for tree in trees)
    names = dict.fromkeys(keys)
    results = tuple((name, column(key)) for (name, _), key in zip(projections, keys, strict=True))
    trees_by_key = dict(zip(keys, trees, strict=True))
    telling = grouper.telling(trees_by_key)
    window = Inherited(source.relation.windows.width_us) if telling else None
    return Grouping(tuple((key, trees_by_key[key]) for key in names), window, telling, (), (), results, None)


def _aggregates_in(tree: exp.Expr, kinds: Mapping[str, FunctionKind]) -> Iterator[exp.Expr]:
    """The aggregates of a tree, not those inside others, nor functions that have OVER."""
    if is_aggregate(tree, kinds):
        yield tree
        return
    for part in over_parts(tree) if isinstance(tree, exp.Window) else tree.iter_expressions():
        yield from _aggregates_in(part, kinds)


def over_parts(window: exp.Window) -> Iterator[exp.Expr]:
    """What a function with OVER is computed of: its arguments and the parts of OVER, but not the function itself."""
    function = window.this
    while isinstance(function, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(function.expression, exp.Expr):
            yield function.expression
        function = function.this
    yield from function.iter_expressions()
    yield from (child for child in window.iter_expressions() if child is not window.this)


def is_aggregate(node: exp.Expr, kinds: Mapping[str, FunctionKind]) -> bool:
    """Whether a node is a call of an aggregate, with its FILTER or WITHIN GROUP."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return is_aggregate(node.this, kinds)
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name.lower()
    return name in functions.AGGREGATES or kinds.get(name) is FunctionKind.AGGREGATE


class _Grouper:
    def __init__(self, source: SelectSource, kinds: Mapping[str, FunctionKind], text: Text) -> None:
        self._relation: Relation = source.relation
        self._name = source.name
        self._kinds = kinds
        self._text = text
        self._window: Tumble | Hop | Session | None = None
        self._window_call: exp.Expr | None = None
        self._select: exp.Select | None = None
        self._keys: dict[str, str] = {}  # the text of a key to its column
        self._arguments: dict[str, tuple[str, exp.Expr]] = {}
        self._aggregates: dict[str, tuple[str, exp.Expr]] = {}

    def group(self, select: exp.Select, projections: Named) -> Grouping:
        self._select = select
        trees = [(name, self.spark(value)) for name, value in projections]
        items = list(self._items(select, trees))
        keys = {}
        for tree in items:
            if not self._is_mark(tree):
                keys[self.add_key(tree)] = tree
        if self._window is not None and not any(map(self._is_mark, items)):
            hint = "add it to GROUP BY"
            span = self._text.place(self._window_call)
            raise refusal("window_not_grouped", "a window belongs in GROUP BY", span, hint)
        having = select.args.get("having")
        results = tuple((name, self._result(tree)) for name, tree in trees)
        kept = None if having is None else self._result(self.spark(having.this))
        telling = self.telling(keys)
        return Grouping(
            tuple(keys.items()),
            self._checked_window(telling),
            telling,
            tuple(self._arguments.values()),
            tuple(self._aggregates.values()),
            results,
            kept,
        )

    def spark(self, tree: exp.Expr) -> exp.Expr:
        """The tree in Spark's terms, with a mark for the window."""
        root = exp.Paren(this=tree.copy())
        for node in list(root.find_all(exp.Anonymous)):
            if is_window(node):
                self._note_window(node)
                mark = column(WINDOW_MARK)
                mark.meta.update(node.meta)
                node.replace(mark)
        return to_spark(root.this, self._text)

    def _note_window(self, node: exp.Anonymous) -> None:
        window = read_window(node, node.expressions, self._text)
        if self._window is not None and window != self._window:
            message = "a query has one window"
            hint = "group in a subquery by one of them, and in the query around it by the other"
            raise refusal("several_windows", message, self._text.place(node), hint)
        self._window, self._window_call = window, node

    def _checked_window(self, telling: frozenset[str]) -> Window | None:
        inner = self._relation.windows.width_us
        if self._window is None:
            return Inherited(inner) if telling else None
        width = self._window.width_us if isinstance(self._window, Tumble | Hop) else None
        if inner is not None and width is not None and width < inner:
            message = "the window is narrower than the windows of the rows it is of"
            hint = "a window of windows is at least as wide as they are"
            raise refusal("mismatched_windows", message, self._text.place(self._window_call), hint)
        return self._window

    def telling(self, keys: Mapping[str, exp.Expr]) -> frozenset[str]:
        """The keys that tell the windows of the rows apart."""
        windows = self._relation.windows
        return frozenset(name for name, tree in keys.items() if windows.told_by(tree, self._name))

    # GROUP BY ---------------------------------------------------------------------------------------------------------

    def _items(self, select: exp.Select, trees: Sequence[tuple[str, exp.Expr]]) -> Iterator[exp.Expr]:
        """What GROUP BY says."""
        clause = select.args.get("group")
        if clause is None:
            return
        for name in ("grouping_sets", "rollup", "cube", "totals"):
            if clause.args.get(name):
                spoken = name.replace("_", " ").upper()
                raise refusal("unsupported", f"{spoken} is not supported", self._text.span(clause, select))
        if clause.args.get("all"):
            for _, tree in trees:
                if not any(True for _ in _aggregates_in(tree, self._kinds)):
                    yield tree
            return
        for item in clause.expressions:
            for part in item.expressions if isinstance(item, exp.Tuple) else (item,):
                yield self._item(part, trees)

    def _item(self, item: exp.Expr, trees: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
        if isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube):
            raise refusal("unsupported", f"{item.key.upper()} is not supported", self._text.span(item))
        if item.is_int:
            place = int(item.name)
            if not 1 <= place <= len(trees):
                message = f"GROUP BY {place}: the query has {len(trees)} columns"
                raise refusal("unknown_column", message, self._text.span(item, item.parent))
            return self._not_aggregate(trees[place - 1][1], item)
        if isinstance(item, exp.Column) and not item.table and item.name not in self._relation.schema.names:
            for name, tree in trees:
                if name == item.name:
                    return self._not_aggregate(tree, item)
        return self._not_aggregate(self.spark(item), item)

    def _not_aggregate(self, tree: exp.Expr, item: exp.Expr) -> exp.Expr:
        for found in _aggregates_in(tree, self._kinds):
            message = "an aggregate cannot be in GROUP BY"
            raise refusal("nested_aggregate", message, self._text.span(item, found))
        if any(True for _ in tree.find_all(exp.Window)):
            raise refusal("nested_aggregate", "OVER cannot be in GROUP BY", self._text.span(item, tree))
        return tree

    def add_key(self, tree: exp.Expr) -> str:
        """The column of a key; the same key twice is one."""
        return self._keys.setdefault(self._comparable(tree), f"_k{len(self._keys)}")

    # Results ----------------------------------------------------------------------------------------------------------

    def _result(self, tree: exp.Expr) -> exp.Expr:
        """The tree in terms of keys and aggregates."""
        if self._is_mark(tree):
            return tree
        if (key := self._keys.get(self._comparable(tree))) is not None:
            return _at(column(key), tree)
        if is_aggregate(tree, self._kinds):
            return _at(column(self._aggregate(tree)), tree)
        if isinstance(tree, exp.Column):
            return self._field(tree)
        for part in list(over_parts(tree) if isinstance(tree, exp.Window) else tree.iter_expressions()):
            replaced = self._result(part)
            if replaced is not part:
                part.replace(replaced)
        return tree

    def _field(self, tree: exp.Column) -> exp.Expr:
        """A field of a key that is a struct; any other column is in no group."""
        first, *fields = self._parts(tree)
        key = self._keys.get(spark_sql(column(first)))
        if key is None or not fields:
            message = f"column {tree.name} is neither in GROUP BY nor in an aggregate"
            hint = f"add it to GROUP BY, or write max({tree.name})"
            raise refusal("not_grouped", message, self._text.span(tree, self._select), hint)
        value: exp.Expr = column(key)
        for field in fields:
            value = exp.Dot(this=value, expression=exp.Identifier(this=field, quoted=True))
        return value

    def _aggregate(self, tree: exp.Expr) -> str:
        call = self._over_arguments(tree.copy())
        text = spark_sql(call)
        name, _ = self._aggregates.setdefault(text, (f"_g{len(self._aggregates)}", call))
        return name

    def _over_arguments(self, call: exp.Expr) -> exp.Expr:
        """The call of an aggregate over columns of its arguments."""
        if isinstance(call, exp.Filter):
            condition = call.expression.this
            call.this.replace(self._over_arguments(call.this))
            condition.replace(self._argument(condition))
        elif isinstance(call, exp.WithinGroup):
            call.this.replace(self._over_arguments(call.this))
            self._replace_arguments(call.expression)
        else:
            self._replace_arguments(call)
        return call

    def _replace_arguments(self, parent: exp.Expr) -> None:
        for child in list(parent.iter_expressions()):
            if isinstance(child, exp.Distinct | exp.Order | exp.Ordered):
                self._replace_arguments(child)
            elif not isinstance(child, exp.Star):
                child.replace(self._argument(child))

    def _argument(self, tree: exp.Expr) -> exp.Expr:
        for found in tree.walk():
            if is_aggregate(found, self._kinds) or isinstance(found, exp.Window):
                raise refusal("nested_aggregate", "aggregates cannot be inside each other", self._text.span(found),
                              "compute the inner one in a subquery")  # fmt: skip
        if self._has_mark(tree):
            raise refusal("window_not_grouped", "a window belongs in GROUP BY", self._text.span(tree))
        if not any(True for _ in tree.find_all(exp.Column)):
            return tree  # a literal, which some aggregates must be given as such
        name, _ = self._arguments.setdefault(self._comparable(tree), (f"_a{len(self._arguments)}", tree.copy()))
        return _at(column(name), tree)

    # Names ------------------------------------------------------------------------------------------------------------

    def _comparable(self, tree: exp.Expr) -> str:
        """A text that is the same for trees that mean the same: with or without the table's name."""
        root = exp.Paren(this=tree.copy())
        for found in list(root.find_all(exp.Column)):
            parts = self._parts(found)
            if len(parts) < len(found.parts):
                found.replace(_path(parts))
        return spark_sql(root.this)

    def _parts(self, tree: exp.Column) -> list[str]:
        parts = [part.name for part in tree.parts]
        return parts[1:] if len(parts) > 1 and parts[0] == self._name else parts

    @staticmethod
    def _is_mark(tree: exp.Expr) -> bool:
        return isinstance(tree, exp.Column) and tree.name == WINDOW_MARK

    def _has_mark(self, tree: exp.Expr) -> bool:
        return any(self._is_mark(found) for found in tree.find_all(exp.Column))


def with_window(tree: exp.Expr, window: exp.Expr) -> exp.Expr:
    """A copy of a tree with a value where the mark of the window is."""
    root = exp.Paren(this=tree.copy())
    for found in list(root.find_all(exp.Column)):
        if found.name == WINDOW_MARK:
            found.replace(window.copy())
    result: exp.Expr = root.this
    return result


def _path(parts: list[str]) -> exp.Column:
    names = [exp.Identifier(this=part, quoted=True) for part in parts]
    return exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(names), strict=False)))


def _at(node: exp.Expr, original: exp.Expr) -> exp.Expr:
    """A node that stands for another, at the other's place in the text."""
    if (found := extent(original)) is not None:
        node.meta.update(start=found[0], end=found[1])
    return node
