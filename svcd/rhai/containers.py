"""What the language can do with arrays: elements in and out, parts, order, and questions asked of each element.

Positions below 0 count from the end. What goes into an array is copied, so that no two share an element.
Functions given to these get the element, then its position. Knows the rows alone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from svcd.base import json_text
from svcd.rhai import errors
from svcd.rhai.builtins import ANY, Builtin, Taker, changing, pure
from svcd.rhai.errors import FunctionError
from svcd.rhai.operators import is_equal
from svcd.rhai.strings import range_span, span, start_of
from svcd.rhai.values import Char, Pointer, Range, Value, as_json, mismatch

Array = list[Value]

_ALL = errors.ARRAY_LENGTH


def _is_inside(array: Array, index: int) -> bool:
    return -len(array) <= index < len(array)


# Elements in and out


def _push(machine: Taker, array: Array, element: Value) -> None:
    machine.room_for_elements(len(array) + 1)
    array.append(machine.own(element))


def _append(machine: Taker, array: Array, others: Array) -> None:
    machine.room_for_elements(len(array) + len(others))
    array.extend(machine.own(others))


def _insert(machine: Taker, array: Array, index: int, element: Value) -> None:
    machine.room_for_elements(len(array) + 1)
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    array.insert(start_of(index, len(array)), machine.own(element))


def _set(machine: Taker, array: Array, index: int, element: Value) -> None:
    if _is_inside(array, index):
        array[index] = machine.own(element)


def _get(machine: Taker, array: Array, index: int) -> Value:
    return array[index] if _is_inside(array, index) else None


def _pop(machine: Taker, array: Array) -> Value:
    return array.pop() if array else None


def _remove(machine: Taker, array: Array, index: int) -> Value:
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    return array.pop(index) if _is_inside(array, index) else None


def _shift(machine: Taker, array: Array) -> Value:
    return _remove(machine, array, 0)


def _pad(machine: Taker, array: Array, length: int, element: Value) -> None:
    machine.room_for_elements(length)
    while len(array) < length:
        array.append(machine.own(element))
        machine.charge(1)


# Parts


def _cut(machine: Taker, array: Array, first: int, last: int, keeps: bool = False) -> Array:
    """Take a part out of an array, or all but a part (keeps); what was taken."""
    part, rest = array[first:last], array[:first] + array[last:]
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    array[:], taken = (part, rest) if keeps else (rest, part)
    return taken


def _extract(machine: Taker, array: Array, start: int, wanted: int = _ALL) -> Array:
    first, last = span(start, len(array), wanted)
    return machine.elements(array[first:last])


def _extract_range(machine: Taker, array: Array, numbers: Range) -> Array:
    first, last = range_span(numbers, len(array))
    return machine.elements(array[first:last])


def _split(machine: Taker, array: Array, start: int) -> Array:
    return _cut(machine, array, start_of(start, len(array)), len(array))


def _cut_span(machine: Taker, array: Array, start: int, wanted: int, *, keeps: bool = False) -> Array:
    return _cut(machine, array, *span(start, len(array), wanted), keeps)


def _cut_range(machine: Taker, array: Array, numbers: Range, *, keeps: bool = False) -> Array:
    return _cut(machine, array, *range_span(numbers, len(array)), keeps)


def _cut_chosen(machine: Taker, array: Array, chooses: Pointer, *, keeps: bool = False) -> Array:
    """Take out the elements for which a function is true, or (keeps) for which it is not."""
    kept: Array = []
    taken: Array = []
    for at, element in enumerate(array.copy()):
        (kept if machine.is_true(chooses, element, at) is keeps else taken).append(element)
    array[:] = kept
    return taken


def _splice(machine: Taker, array: Array, start: int, wanted: int, others: Array) -> None:
    first, last = span(start, len(array), wanted)
    machine.room_for_elements(len(array) - (last - first) + len(others))
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    array[first:last] = machine.own(others)


def _splice_range(machine: Taker, array: Array, numbers: Range, others: Array) -> None:
    first, last = range_span(numbers, len(array))
    _splice(machine, array, first, last - first, others)


def _truncate(machine: Taker, array: Array, length: int) -> None:
    del array[max(length, 0):]


def _chop(machine: Taker, array: Array, length: int) -> None:
    del array[:max(len(array) - max(length, 0), 0)]


# Questions


def _filter(machine: Taker, array: Array, chooses: Pointer) -> Array:
    copied = array.copy()
    return machine.elements([element for at, element in enumerate(copied) if machine.is_true(chooses, element, at)])


def _map(machine: Taker, array: Array, makes: Pointer) -> Array:
    return machine.elements([machine.callback(makes, element, at) for at, element in enumerate(array.copy())])


def _for_each(machine: Taker, array: Array, acts: Pointer) -> None:
    for at, element in enumerate(array.copy()):
        array[at] = machine.acted(acts, element, at)


def _position(machine: Taker, array: Array, chooses: Pointer, start: int = 0) -> int:
    for at in range(start_of(start, len(array)), len(array)):
        if at < len(array) and machine.is_true(chooses, array[at], at):
            return at
    return -1


def _index_of(machine: Taker, array: Array, wanted: Value, start: int = 0) -> int:
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    for at in range(start_of(start, len(array)), len(array)):
        if is_equal(machine, array[at], wanted):
            return at
    return -1


def _find(machine: Taker, array: Array, chooses: Pointer, start: int = 0) -> Value:
    at = _position(machine, array, chooses, start)
    return array[at] if 0 <= at < len(array) else None


def _find_map(machine: Taker, array: Array, makes: Pointer) -> Value:
    for at, element in enumerate(array.copy()):
        made = machine.callback(makes, element, at)
        if made is not None:
            return made
    return None


def _some(machine: Taker, array: Array, chooses: Pointer) -> bool:
    return _position(machine, array, chooses) >= 0


def _all(machine: Taker, array: Array, chooses: Pointer) -> bool:
    for at, element in enumerate(array.copy()):
        if not machine.is_true(chooses, element, at):
            return False
    return True


def _reduce(machine: Taker, array: Array, makes: Pointer, first: Value = None) -> Value:
    return _reduced(machine, list(enumerate(array)), makes, first)


def _reduce_rev(machine: Taker, array: Array, makes: Pointer, first: Value = None) -> Value:
    return _reduced(machine, list(enumerate(array))[::-1], makes, first)


def _reduced(machine: Taker, elements: Sequence[tuple[int, Value]], makes: Pointer, first: Value) -> Value:
    result = machine.callback(first) if type(first) is Pointer else first
    for at, element in elements:
        result = machine.callback(makes, result, element, at)
    return result


# Order


def _dedup(machine: Taker, array: Array, same: Pointer | None = None) -> None:
    kept: Array = []
    for element in array.copy():
        if not kept or not (machine.is_true(same, kept[-1], element) if same else is_equal(machine, kept[-1], element)):
            kept.append(element)
    array[:] = kept


def _sorted(machine: Taker, array: Array, order: Callable[[Value, Value], bool]) -> Array:
    """Merged by an order (whether the second may not come before the first): ties keep their order."""
    runs = [[element] for element in array]
    while len(runs) > 1:
        machine.charge(len(array))
        pairs = zip(runs[::2], [*runs[1::2], []])  # an odd one is merged with nothing
        runs = [_merged(order, left, right) for left, right in pairs]
    return runs[0] if runs else []


def _merged(order: Callable[[Value, Value], bool], left: Array, right: Array) -> Array:
    merged: Array = []
    at = 0
    for element in left:
        while at < len(right) and not order(element, right[at]):
            merged.append(right[at])
            at += 1
        merged.append(element)
    return merged + right[at:]


def _order_by(machine: Taker, array: Array, compares: Pointer) -> Array:
    def order(left: Value, right: Value) -> bool:
        answer = machine.callback(compares, left, right)
        return answer <= 0 if type(answer) is int else answer is not False

    return _sorted(machine, array, order)


def _order(machine: Taker, array: Array) -> Array:
    """By value. Raises unless all elements are of one type that has an order."""
    if not array:
        return []
    kind = type(array[0])
    for element in array:
        if type(element) is not kind:
            raise mismatch(element, "elements of one type")
    if kind not in (int, float, str, Char, bool):
        raise mismatch(array[0], "elements that have an order")
    if kind in (str, Char):
        machine.charge(sum(map(len, array)) >> errors.CHARACTERS_SHIFT)
    return _sorted(machine, array, lambda left, right: left <= right)


def _in_place(order: Callable[..., Array]) -> Callable[..., None]:
    def sort(machine: Taker, array: Array, *compares: Pointer) -> None:
        array[:] = order(machine, array.copy(), *compares)

    return sort


def _descending(machine: Taker, array: Array) -> Array:
    return _order(machine, array)[::-1]


def _reverse(machine: Taker, array: Array) -> None:
    machine.charge(len(array) >> errors.ELEMENTS_SHIFT)
    array.reverse()


def _zip(machine: Taker, array: Array, others: Array, makes: Pointer) -> Array:
    pairs = list(zip(array, others))
    return machine.elements([machine.callback(makes, left, right, at) for at, (left, right) in enumerate(pairs)])


def _join(machine: Taker, array: Array, between: str = "") -> str:
    machine.charge(len(array) >> 2)
    for element in array:
        if not isinstance(element, str):
            raise FunctionError("Data type incorrect: only texts and characters can be joined")
    machine.room_for_text(sum(map(len, array)) + len(array) * len(between))
    return machine.text(between.join(array))


def _elements() -> Iterator[Builtin]:
    yield pure("len", (list,), lambda machine, array: len(array))
    yield pure("is_empty", (list,), lambda machine, array: not array)
    yield pure("get", (list, int), _get)
    yield changing("set", (list, int, ANY), _set)
    yield changing("push", (list, ANY), _push)
    yield changing("+=", (list, ANY), _push)
    yield changing("append", (list, list), _append)
    yield changing("+=", (list, list), _append)
    yield changing("insert", (list, int, ANY), _insert)
    yield changing("pad", (list, int, ANY), _pad)
    yield changing("pop", (list,), _pop)
    yield changing("shift", (list,), _shift)
    yield changing("remove", (list, int), _remove)
    yield changing("clear", (list,), lambda machine, array: array.clear())


def _parts() -> Iterator[Builtin]:
    yield pure("extract", (list, int), _extract)
    yield pure("extract", (list, int, int), _extract)
    yield pure("extract", (list, Range), _extract_range)
    yield changing("split", (list, int), _split)
    yield changing("truncate", (list, int), _truncate)
    yield changing("chop", (list, int), _chop)
    yield changing("splice", (list, int, int, list), _splice)
    yield changing("splice", (list, Range, list), _splice_range)
    for name, keeps in (("drain", False), ("retain", True)):
        yield changing(name, (list, int, int), partial(_cut_span, keeps=keeps))
        yield changing(name, (list, Range), partial(_cut_range, keeps=keeps))
        yield changing(name, (list, Pointer), partial(_cut_chosen, keeps=keeps))


def _questions() -> Iterator[Builtin]:
    for name, act in (("filter", _filter), ("map", _map), ("find", _find), ("some", _some),
                      ("find_map", _find_map), ("all", _all), ("index_of", _position), ("reduce", _reduce),
                      ("reduce_rev", _reduce_rev)):
        yield pure(name, (list, Pointer), act)
    for name, found in (("index_of", _position), ("find", _find)):
        yield pure(name, (list, Pointer, int), found)
    yield pure("index_of", (list, ANY), _index_of)
    yield pure("index_of", (list, ANY, int), _index_of)
    yield pure("reduce", (list, Pointer, ANY), _reduce)
    yield pure("reduce_rev", (list, Pointer, ANY), _reduce_rev)
    yield changing("for_each", (list, Pointer), _for_each)
    yield pure("zip", (list, list, Pointer), _zip)


def _orders() -> Iterator[Builtin]:
    yield changing("sort", (list,), _in_place(_order))
    yield changing("sort", (list, Pointer), _in_place(_order_by))
    yield changing("sort_by", (list, Pointer), _in_place(_order_by))
    yield changing("sort_desc", (list,), _in_place(_descending))
    yield pure("order", (list,), lambda machine, array: _order(machine, array.copy()))
    yield pure("order", (list, Pointer), lambda machine, array, compares: _order_by(machine, array.copy(), compares))
    yield pure("order_by", (list, Pointer), lambda machine, array, compares: _order_by(machine, array.copy(), compares))
    yield pure("order_desc", (list,), lambda machine, array: _descending(machine, array.copy()))
    yield changing("reverse", (list,), _reverse)
    yield changing("dedup", (list,), _dedup)
    yield changing("dedup", (list, Pointer), _dedup)
    yield pure("join", (list,), _join)
    yield pure("join", (list, str), _join)


ARRAY_BUILTINS = (*_elements(), *_parts(), *_questions(), *_orders())


# What the language can do with object maps and ranges.
#
# Members are seen in the order of their names. Knows the rows alone.


Map = dict[str, Value]


def _set_maps(machine: Taker, members: Map, name: str, value: Value) -> None:
    machine.room_for_members(len(members) + 1)
    members[name] = machine.own(value)


def _mix_in(machine: Taker, members: Map, others: Map) -> None:
    """The members of the second go into the first, whose own of these names are lost."""
    members.update(machine.own(others))
    machine.room_for_members(len(members))


def _fill(machine: Taker, members: Map, others: Map) -> None:
    """The members of the second that the first does not have go into it."""
    for name, value in machine.own(others).items():
        members.setdefault(name, value)
    machine.room_for_members(len(members))


def _keys(machine: Taker, members: Map) -> list[Value]:
    machine.charge(len(members))
    return machine.elements(sorted(members))


def _values(machine: Taker, members: Map) -> list[Value]:
    return [members[name] for name in _keys(machine, members)]


def _chosen(machine: Taker, members: Map, chooses: Pointer) -> Map:
    return {name: members[name] for name in _keys(machine, members)
            if name in members and machine.is_true(chooses, name, members[name])}


def _keep(is_kept: bool) -> Callable[[Taker, Map, Pointer], Map]:
    """Take members out of an object map: those that are chosen, or (is_kept) the others; what was taken."""

    def cut(machine: Taker, members: Map, chooses: Pointer) -> Map:
        chosen = _chosen(machine, members, chooses)
        taken = {name: members[name] for name in members if (name in chosen) is not is_kept}
        for name in taken:
            del members[name]
        return taken

    return cut


def _to_json(machine: Taker, members: Map) -> str:
    text = json_text.dumps(as_json(members))
    machine.charge(len(text) >> 3)
    return machine.text(text)


def _rows() -> Iterator[Builtin]:
    yield pure("len", (dict,), lambda machine, members: len(members))
    yield pure("is_empty", (dict,), lambda machine, members: not members)
    yield pure("get", (dict, str), lambda machine, members, name: members.get(name))
    yield changing("set", (dict, str, ANY), _set_maps)
    yield changing("remove", (dict, str), lambda machine, members, name: members.pop(name, None))
    yield changing("clear", (dict,), lambda machine, members: members.clear())
    yield changing("mixin", (dict, dict), _mix_in)
    yield changing("+=", (dict, dict), _mix_in)
    yield changing("fill_with", (dict, dict), _fill)
    yield pure("keys", (dict,), _keys)
    yield pure("values", (dict,), _values)
    yield pure("filter", (dict, Pointer), _chosen)
    yield changing("drain", (dict, Pointer), _keep(False))
    yield changing("retain", (dict, Pointer), _keep(True))
    yield pure("to_json", (dict,), _to_json)


def _range_rows() -> Iterator[Builtin]:
    yield pure("start", (Range,), lambda machine, numbers: numbers.start)
    yield pure("end", (Range,), lambda machine, numbers: numbers.end)
    yield pure("is_inclusive", (Range,), lambda machine, numbers: numbers.is_inclusive)
    yield pure("is_exclusive", (Range,), lambda machine, numbers: not numbers.is_inclusive)
    yield pure("is_empty", (Range,), lambda machine, numbers: not numbers.values())


MAP_BUILTINS = (*_rows(), *_range_rows())
PROPERTIES = {list: ("len", "is_empty"), Range: ("start", "end", "is_inclusive", "is_exclusive", "is_empty")}
