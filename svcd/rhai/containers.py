"""Builtins for arrays, object maps and ranges.

Negative indexes of arrays count from the end. Elements and members are copied when they are stored, so that no two values
share one. Callbacks on arrays get (element, index), those on maps (name, value); members are visited in order of name.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from svcd.base import json_text
from svcd.rhai import values
from svcd.rhai.operators import is_equal
from svcd.rhai.scalars import range_span, span, start_of
from svcd.rhai.values import (
    ANY, Builtin, Char, FnPointer, FunctionError, Range, Runtime, Value, as_json, changing, mismatch, pure,
)

Array = list[Value]
Map = dict[str, Value]
_ALL = values.ARRAY_LENGTH


def _is_inside(array: Array, index: int) -> bool:
    return -len(array) <= index < len(array)


# Arrays: elements


def _push(runtime: Runtime, array: Array, element: Value) -> None:
    runtime.check_array_length(len(array) + 1)
    array.append(runtime.copied(element))


def _append(runtime: Runtime, array: Array, others: Array) -> None:
    runtime.check_array_length(len(array) + len(others))
    array.extend(runtime.copied(others))


def _insert(runtime: Runtime, array: Array, index: int, element: Value) -> None:
    runtime.check_array_length(len(array) + 1)
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    array.insert(start_of(index, len(array)), runtime.copied(element))


def _set(runtime: Runtime, array: Array, index: int, element: Value) -> None:
    if _is_inside(array, index):
        array[index] = runtime.copied(element)


def _remove(runtime: Runtime, array: Array, index: int) -> Value:
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    return array.pop(index) if _is_inside(array, index) else None


def _pad(runtime: Runtime, array: Array, length: int, element: Value) -> None:
    runtime.check_array_length(length)
    while len(array) < length:
        array.append(runtime.copied(element))
        runtime.charge(1)


# Arrays: slices


def _part(runtime: Runtime, array: Array, bounds: tuple[int, int]) -> Array:
    return runtime.new_array(array[slice(*bounds)])


def _cut(runtime: Runtime, array: Array, bounds: tuple[int, int], keeps: bool = False) -> Array:
    """Remove a slice of an array, or (keeps) everything except the slice; return the removed elements."""
    first, last = bounds
    part, rest = array[first:last], array[:first] + array[last:]
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    array[:], taken = (part, rest) if keeps else (rest, part)
    return taken


def _cut_chosen(runtime: Runtime, array: Array, predicate: FnPointer, *, keeps: bool = False) -> Array:
    """Remove the elements for which a predicate is true, or (keeps) false; returns them."""
    kept: Array = []
    taken: Array = []
    for at, element in enumerate(array.copy()):
        (kept if runtime.matches(predicate, element, at) is keeps else taken).append(element)
    array[:] = kept
    return taken


def _splice(runtime: Runtime, array: Array, start: int, wanted: int, others: Array) -> None:
    first, last = span(start, len(array), wanted)
    runtime.check_array_length(len(array) - (last - first) + len(others))
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    array[first:last] = runtime.copied(others)


def _splice_range(runtime: Runtime, array: Array, numbers: Range, others: Array) -> None:
    first, last = range_span(numbers, len(array))
    _splice(runtime, array, first, last - first, others)


def _truncate(runtime: Runtime, array: Array, length: int) -> None:
    del array[max(length, 0):]


def _chop(runtime: Runtime, array: Array, length: int) -> None:
    del array[:max(len(array) - max(length, 0), 0)]


# Arrays: callbacks and search


def _filter(runtime: Runtime, array: Array, predicate: FnPointer) -> Array:
    return runtime.new_array([element for at, element in enumerate(array.copy()) if runtime.matches(predicate, element, at)])


def _map(runtime: Runtime, array: Array, function: FnPointer) -> Array:
    return runtime.new_array([runtime.callback(function, element, at) for at, element in enumerate(array.copy())])


def _for_each(runtime: Runtime, array: Array, acts: FnPointer) -> None:
    for at, element in enumerate(array.copy()):
        array[at] = runtime.update_element(acts, element, at)


def _position(runtime: Runtime, array: Array, predicate: FnPointer, start: int = 0) -> int:
    for at in range(start_of(start, len(array)), len(array)):
        if at < len(array) and runtime.matches(predicate, array[at], at):
            return at
    return -1


def _index_of(runtime: Runtime, array: Array, wanted: Value, start: int = 0) -> int:
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    for at in range(start_of(start, len(array)), len(array)):
        if is_equal(runtime, array[at], wanted):
            return at
    return -1


def _find(runtime: Runtime, array: Array, predicate: FnPointer, start: int = 0) -> Value:
    at = _position(runtime, array, predicate, start)
    return array[at] if 0 <= at < len(array) else None


def _find_map(runtime: Runtime, array: Array, function: FnPointer) -> Value:
    for at, element in enumerate(array.copy()):
        made = runtime.callback(function, element, at)
        if made is not None:
            return made
    return None


def _all(runtime: Runtime, array: Array, predicate: FnPointer) -> bool:
    for at, element in enumerate(array.copy()):  # not all(): a generator would take one more frame of Python's stack per call
        if not runtime.matches(predicate, element, at):
            return False
    return True


def _reduce(runtime: Runtime, array: Array, function: FnPointer, first: Value = None, *, is_reversed: bool = False) -> Value:
    elements = list(enumerate(array))
    result = runtime.callback(first) if type(first) is FnPointer else first
    for at, element in reversed(elements) if is_reversed else elements:
        result = runtime.callback(function, result, element, at)
    return result


# Arrays: order


def _dedup(runtime: Runtime, array: Array, same: FnPointer | None = None) -> None:
    kept: Array = []
    for element in array.copy():
        if not kept or not (runtime.matches(same, kept[-1], element) if same else is_equal(runtime, kept[-1], element)):
            kept.append(element)
    array[:] = kept


def _sorted(runtime: Runtime, array: Array, order: Callable[[Value, Value], bool]) -> Array:
    """Sort by a stable merge sort, charged per pass. order(x, y): returns whether x may stay before y."""
    def merged(left: Array, right: Array) -> Array:
        together: Array = []
        at = 0
        for element in left:
            while at < len(right) and not order(element, right[at]):
                together.append(right[at])
                at += 1
            together.append(element)
        return together + right[at:]

    runs = [[element] for element in array]
    while len(runs) > 1:
        runtime.charge(len(array))
        runs = list(map(merged, runs[::2], [*runs[1::2], []]))  # an odd run is merged with an empty one
    return runs[0] if runs else []


def _order_by(runtime: Runtime, array: Array, compares: FnPointer) -> Array:
    def order(left: Value, right: Value) -> bool:
        answer = runtime.callback(compares, left, right)
        return answer <= 0 if type(answer) is int else answer is not False

    return _sorted(runtime, array, order)


def _order(runtime: Runtime, array: Array) -> Array:
    """Sort by value. Raises FunctionError unless all elements are of one type that is ordered."""
    if not array:
        return []
    kind = type(array[0])
    for element in array:
        if type(element) is not kind:
            raise mismatch(element, "elements of one type")
    if kind not in (int, float, str, Char, bool):
        raise mismatch(array[0], "elements that have an order")
    if kind in (str, Char):
        runtime.charge(sum(map(len, array)) >> values.CHARACTERS_SHIFT)
    return _sorted(runtime, array, lambda left, right: left <= right)


def _order_down(runtime: Runtime, array: Array) -> Array:
    return _order(runtime, array)[::-1]


def _in_place(order: Callable[..., Array]) -> Callable[..., None]:
    def sort(runtime: Runtime, array: Array, *compares: FnPointer) -> None:
        array[:] = order(runtime, array.copy(), *compares)

    return sort


def _reverse(runtime: Runtime, array: Array) -> None:
    runtime.charge(len(array) >> values.ELEMENTS_SHIFT)
    array.reverse()


def _zip(runtime: Runtime, array: Array, others: Array, function: FnPointer) -> Array:
    pairs = list(zip(array, others))
    return runtime.new_array([runtime.callback(function, left, right, at) for at, (left, right) in enumerate(pairs)])


def _join(runtime: Runtime, array: Array, between: str = "") -> str:
    runtime.charge(len(array) >> 2)
    for element in array:
        if not isinstance(element, str):
            raise FunctionError("Data type incorrect: only texts and characters can be joined")
    runtime.check_text_length(sum(map(len, array)) + len(array) * len(between))
    return runtime.new_text(between.join(array))


def _array_rows() -> Iterator[Builtin]:
    yield pure("len", (list,), lambda runtime, array: len(array))
    yield pure("is_empty", (list,), lambda runtime, array: not array)
    yield pure("get", (list, int), lambda runtime, array, index: array[index] if _is_inside(array, index) else None)
    yield changing("set", (list, int, ANY), _set)
    yield changing("push", (list, ANY), _push)
    yield changing("+=", (list, ANY), _push)
    yield changing("append", (list, list), _append)
    yield changing("+=", (list, list), _append)
    yield changing("insert", (list, int, ANY), _insert)
    yield changing("pad", (list, int, ANY), _pad)
    yield changing("pop", (list,), lambda runtime, array: array.pop() if array else None)
    yield changing("shift", (list,), lambda runtime, array: _remove(runtime, array, 0))
    yield changing("remove", (list, int), _remove)
    yield changing("clear", (list,), lambda runtime, array: array.clear())
    yield pure("extract", (list, int), lambda runtime, array, start: _part(runtime, array, span(start, len(array), _ALL)))
    yield pure("extract", (list, int, int), lambda runtime, array, at, most: _part(runtime, array, span(at, len(array), most)))
    yield pure("extract", (list, Range), lambda runtime, array, numbers: _part(runtime, array, range_span(numbers, len(array))))
    yield changing("split", (list, int), lambda runtime, array, at: _cut(runtime, array, (start_of(at, len(array)), len(array))))
    yield changing("truncate", (list, int), _truncate)
    yield changing("chop", (list, int), _chop)
    yield changing("splice", (list, int, int, list), _splice)
    yield changing("splice", (list, Range, list), _splice_range)
    for name, keeps in (("drain", False), ("retain", True)):
        yield changing(name, (list, int, int), lambda runtime, array, start, most, keeps=keeps: _cut(
            runtime, array, span(start, len(array), most), keeps))
        yield changing(name, (list, Range), lambda runtime, array, numbers, keeps=keeps: _cut(
            runtime, array, range_span(numbers, len(array)), keeps))
        yield changing(name, (list, FnPointer), partial(_cut_chosen, keeps=keeps))
    for name, act in (("filter", _filter), ("map", _map), ("find", _find), ("find_map", _find_map), ("all", _all),
                      ("some", lambda runtime, array, predicate: _position(runtime, array, predicate) >= 0),
                      ("index_of", _position)):
        yield pure(name, (list, FnPointer), act)
    for name, act in (("index_of", _position), ("find", _find)):
        yield pure(name, (list, FnPointer, int), act)
    yield pure("index_of", (list, ANY), _index_of)
    yield pure("index_of", (list, ANY, int), _index_of)
    for name, reduce in (("reduce", _reduce), ("reduce_rev", partial(_reduce, is_reversed=True))):
        yield pure(name, (list, FnPointer), reduce)
        yield pure(name, (list, FnPointer, ANY), reduce)
    yield changing("for_each", (list, FnPointer), _for_each)
    yield pure("zip", (list, list, FnPointer), _zip)
    yield changing("sort", (list,), _in_place(_order))
    yield changing("sort", (list, FnPointer), _in_place(_order_by))
    yield changing("sort_by", (list, FnPointer), _in_place(_order_by))
    yield changing("sort_desc", (list,), _in_place(_order_down))
    yield pure("order", (list,), lambda runtime, array: _order(runtime, array.copy()))
    yield pure("order", (list, FnPointer), lambda runtime, array, compares: _order_by(runtime, array.copy(), compares))
    yield pure("order_by", (list, FnPointer), lambda runtime, array, compares: _order_by(runtime, array.copy(), compares))
    yield pure("order_desc", (list,), lambda runtime, array: _order_down(runtime, array.copy()))
    yield changing("reverse", (list,), _reverse)
    yield changing("dedup", (list,), _dedup)
    yield changing("dedup", (list, FnPointer), _dedup)
    yield pure("join", (list,), _join)
    yield pure("join", (list, str), _join)


ARRAY_BUILTINS = tuple(_array_rows())


# Object maps


def _set_maps(runtime: Runtime, members: Map, name: str, value: Value) -> None:
    runtime.check_map_length(len(members) + 1)
    members[name] = runtime.copied(value)


def _mix_in(runtime: Runtime, members: Map, others: Map) -> None:
    """Copy the members of another map into this one, overwriting."""
    members.update(runtime.copied(others))
    runtime.check_map_length(len(members))


def _fill(runtime: Runtime, members: Map, others: Map) -> None:
    """Copy the members that this map lacks from another map."""
    for name, value in runtime.copied(others).items():
        members.setdefault(name, value)
    runtime.check_map_length(len(members))


def _keys(runtime: Runtime, members: Map) -> list[Value]:
    runtime.charge(len(members))
    return runtime.new_array(sorted(members))


def _filter_members(runtime: Runtime, members: Map, predicate: FnPointer) -> Map:
    return {name: members[name] for name in _keys(runtime, members)
            if name in members and runtime.matches(predicate, name, members[name])}


def _cut_members(runtime: Runtime, members: Map, predicate: FnPointer, *, keeps: bool = False) -> Map:
    """Remove the members for which a predicate is true, or (keeps) false; return them."""
    chosen = _filter_members(runtime, members, predicate)
    taken = {name: members[name] for name in members if (name in chosen) is not keeps}
    for name in taken:
        del members[name]
    return taken


def _to_json(runtime: Runtime, members: Map) -> str:
    text = json_text.dumps(as_json(members))
    runtime.charge(len(text) >> 3)
    return runtime.new_text(text)


def _map_rows() -> Iterator[Builtin]:
    yield pure("len", (dict,), lambda runtime, members: len(members))
    yield pure("is_empty", (dict,), lambda runtime, members: not members)
    yield pure("get", (dict, str), lambda runtime, members, name: members.get(name))
    yield changing("set", (dict, str, ANY), _set_maps)
    yield changing("remove", (dict, str), lambda runtime, members, name: members.pop(name, None))
    yield changing("clear", (dict,), lambda runtime, members: members.clear())
    yield changing("mixin", (dict, dict), _mix_in)
    yield changing("+=", (dict, dict), _mix_in)
    yield changing("fill_with", (dict, dict), _fill)
    yield pure("keys", (dict,), _keys)
    yield pure("values", (dict,), lambda runtime, members: [members[name] for name in _keys(runtime, members)])
    yield pure("filter", (dict, FnPointer), _filter_members)
    yield changing("drain", (dict, FnPointer), _cut_members)
    yield changing("retain", (dict, FnPointer), partial(_cut_members, keeps=True))
    yield pure("to_json", (dict,), _to_json)
    yield pure("start", (Range,), lambda runtime, numbers: numbers.start)
    yield pure("end", (Range,), lambda runtime, numbers: numbers.end)
    yield pure("is_inclusive", (Range,), lambda runtime, numbers: numbers.is_inclusive)
    yield pure("is_exclusive", (Range,), lambda runtime, numbers: not numbers.is_inclusive)
    yield pure("is_empty", (Range,), lambda runtime, numbers: not numbers.values())


MAP_BUILTINS = tuple(_map_rows())
PROPERTIES = {list: ("len", "is_empty"), Range: ("start", "end", "is_inclusive", "is_exclusive", "is_empty")}
