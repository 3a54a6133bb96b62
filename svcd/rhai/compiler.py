"""Statements turned into what runs: one Python function per part, which takes the frame of its call.

Knows what blocks, choices, loops, variables, assignments and catching do; expressions are in `expression_code`. Each
statement and turn of a loop counts. Refuses to know documents.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from svcd.rhai import chains, errors, syntax
from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.expression_compiler import ExpressionCoder
from svcd.rhai.interpreter import Body, Cell, Frame, Returned, Scripted
from svcd.rhai.strings import chars
from svcd.rhai.syntax import Node, Scope
from svcd.rhai.values import Range, Value, pieces, type_name


class _Left(Exception):
    """`break`: on its way to the loop, with the loop's value."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _Skipped(Exception):
    """`continue`: on its way to the loop."""


class Coder(ExpressionCoder):
    """Turns the parts of one text into what runs on one machine."""

    def program(self, script: syntax.Script, names: Sequence[str]) -> tuple[Body, Scope]:
        """A text, whose variables `names` are there from the start; and the scope that tells their slots."""
        scripted = {key: Scripted(made.name, len(made.parameters)) for key, made in script.definitions.items()}
        self.machine.scripted = scripted
        for key, definition in script.definitions.items():
            self.scope = Scope(definition.parameters)
            scripted[key].body = self.node(definition.body)
            scripted[key].slots = self.scope.slots
        self.scope = Scope(names)
        return self._sequence(script.statements), self.scope

    def node(self, node: Node) -> Body:
        """What runs a part."""
        return _CODERS[type(node)](self, node)

    def block(self, node: syntax.Block) -> Body:
        with self.scope.block():
            return self._sequence(node.statements)

    def _sequence(self, statements: Sequence[Node]) -> Body:
        """Statements one after another; the value is that of the last. Errors without a place get theirs."""
        runs = [(self.node(statement), statement.position) for statement in statements]
        step = self.machine.step

        def run(frame: Frame) -> Value:
            value = position = None
            try:
                for statement, position in runs:
                    step()
                    value = statement(frame)
            except FunctionError as error:
                raise error.at(position) from None
            return value

        return run

    def if_else(self, node: syntax.If) -> Body:
        branches = [(self.truth(condition), self.node(body)) for condition, body in node.branches]
        otherwise = self.node(node.otherwise) if node.otherwise else None
        step = self.machine.step

        def run(frame: Frame) -> Value:
            for condition, body in branches:
                step(node.position)
                if condition(frame):
                    return body(frame)
            return otherwise(frame) if otherwise else None

        return run

    def switch(self, node: syntax.Switch) -> Body:
        value = self.node(node.value)
        cases = [self._case(case) for case in node.cases]
        machine, cost = self.machine, 1 + sum(1 + len(case.matches) for case in node.cases) // 4

        def run(frame: Frame) -> Value:
            held = value(frame)
            machine.charge(cost)
            key = f"{type_name(held)} {machine.shown(held, is_bare=False)}"
            for matches, condition, body in cases:
                if matches(held, key) and (condition is None or condition(frame)):
                    return body(frame)
            return None

        return run

    def _case(self, case: syntax.Case) -> tuple[Callable[[Value, str], bool], Callable[[Frame], bool] | None, Body]:
        condition = self.truth(case.condition) if case.condition else None
        with self.scope.block():
            body = self.node(case.body)
        if case.is_default:
            return (lambda value, key: True), condition, body
        keys = {f"{type_name(match)} {''.join(pieces(match))}" for match in case.matches}
        ranges = [match.values() for match in case.matches if type(match) is Range]

        def matches(value: Value, key: str) -> bool:
            return key in keys or type(value) is int and any(value in numbers for numbers in ranges)

        return matches, condition, body

    def while_loop(self, node: syntax.While) -> Body:
        condition = self.truth(node.condition) if node.condition else None
        body, step, position = self.node(node.body), self.machine.step, node.position

        def run(frame: Frame) -> Value:
            try:
                while condition is None or condition(frame):
                    step(position)
                    _once(body, frame)
            except _Left as left:
                return left.value
            return None

        return run

    def do_loop(self, node: syntax.Do) -> Body:
        body, condition, step = self.node(node.body), self.truth(node.condition), self.machine.step

        def run(frame: Frame) -> Value:
            try:
                while True:
                    step(node.position)
                    if _once(body, frame) and condition(frame) is node.is_until:
                        return None
            except _Left as left:
                return left.value

        return run

    def for_loop(self, node: syntax.For) -> Body:
        values, step = self.node(node.values), self.machine.step
        with self.scope.block():
            counter = self.scope.declare(node.counter, node.position) if node.counter else None
            slot = self.scope.declare(node.name, node.position)
            body = self.node(node.body)

        def run(frame: Frame) -> Value:
            frame[slot] = element = Cell(None)
            if counter is not None:
                frame[counter] = Cell(0)
            try:
                for at, value in enumerate(self._iterated(values(frame), node.values.position)):
                    step(node.position)
                    element.value = value
                    if counter is not None:
                        frame[counter].value = at
                    _once(body, frame)
            except _Left as left:
                return left.value
            return None

        return run

    def _iterated(self, value: Value, position: Position) -> Iterable[Value]:
        try:
            if type(value) is list:
                array: list[Value] = self.machine.own(value)
                return array
            if type(value) is str:
                return chars(self.machine, value)
        except FunctionError as error:
            raise error.at(position) from None
        if type(value) is Range:
            return value.values()
        raise FunctionError("For loop expects iterable type", position)

    def let(self, node: syntax.Let) -> Body:
        value = self.owned(node.value) if node.value else lambda frame: None
        slot = self.scope.declare(node.name, node.position, is_constant=node.is_constant)
        is_constant = node.is_constant

        def run(frame: Frame) -> None:
            frame[slot] = Cell(value(frame), is_constant)

        return run

    def assignment(self, node: syntax.Assignment) -> Body:
        target = node.target
        root = target if isinstance(target, syntax.Variable) else target.root
        if isinstance(root, syntax.Variable) and self.scope.is_constant(root.name):
            raise FunctionError(f"Cannot assign to constant {root.name}", root.position)
        value = self.owned(node.value)
        join = self._join(node.operator) if node.operator else None
        if isinstance(target, syntax.Variable):
            run = self._to_variable(target, value, join)
        else:
            assert isinstance(root, syntax.Variable)
            assign = chains.assign(root.name, root.position, self.root(root), self.steps(target.links), self.machine)

            def run(frame: Frame) -> None:
                assign(frame, value(frame), join)

        return run

    def _to_variable(self, target: syntax.Variable, value: Body, join: Any) -> Body:
        find = self.cell(target)

        def run(frame: Frame) -> None:
            new = value(frame)
            cell = find(frame)
            if cell.is_constant:
                raise FunctionError(f"Cannot modify constant {target.name}", target.position)
            cell.value = join(cell.value, (cell, None, None), new) if join else new

        return run

    def _join(self, operator: str) -> Callable[[Value, chains.Place, Value], Value]:
        """`+=` and its like: containers and texts grow in place, all else is what the operator makes of it."""
        machine, in_place = self.machine, f"{operator}="

        def join(held: Value, place: chains.Place, value: Value) -> Value:
            if operator == "+" and isinstance(held, (str, list, dict)):
                found = machine.native(in_place if type(held) in (str, list, dict) else operator, (held, value))
                if found.replaces:
                    return found.run(machine, held, value)[0]
                made = found.run(machine, held, value)
                return held if found.changes else made
            return machine.native(operator, (held, value)).run(machine, held, value)

        return join

    def leave(self, node: syntax.Break) -> Body:
        value = self.owned(node.value) if node.value else None

        def run(frame: Frame) -> Value:
            raise _Left(value(frame) if value else None)

        return run

    def skip(self, node: syntax.Continue) -> Body:
        def run(frame: Frame) -> Value:
            raise _Skipped

        return run

    def leave_function(self, node: syntax.Return) -> Body:
        value = self.node(node.value) if node.value else None

        def run(frame: Frame) -> Value:
            raise Returned(value(frame) if value else None)

        return run

    def throw(self, node: syntax.Throw) -> Body:
        value, machine = self.owned(node.value) if node.value else None, self.machine

        def run(frame: Frame) -> Value:
            thrown = value(frame) if value else None
            raise FunctionError.throwing(thrown, machine.shown(thrown)[:errors.TOLD_LENGTH], node.position)

        return run

    def catching(self, node: syntax.Try) -> Body:
        body, name = self.node(node.body), node.name
        with self.scope.block():
            slot = self.scope.declare(name, node.position) if name else None
            handler = self.node(node.handler)

        def run(frame: Frame) -> Value:
            try:
                return body(frame)
            except FunctionError as error:
                if error.is_limit:
                    raise
                caught = error
            if slot is not None:
                frame[slot] = Cell(_told(caught))
            try:
                return handler(frame)
            except FunctionError as error:
                if error.has_thrown and error.thrown is None:  # an empty `throw` throws the same again
                    raise caught.at(error.position) from None
                raise

        return run


def _once(body: Body, frame: Frame) -> bool:
    """One turn of a loop; False when it was cut short by `continue`."""
    try:
        body(frame)
    except _Skipped:
        return False
    return True


def _told(error: FunctionError) -> Value:
    """What `catch` gets: the value that was thrown, or what the error says and where."""
    if error.has_thrown:
        return error.thrown
    place = {"line": error.position.line, "position": error.position.column} if error.position else {}
    return {"message": error.message, **place}


_CODERS: Mapping[type[Node], Callable[[Coder, Any], Body]] = {
    syntax.Literal: Coder.literal, syntax.Interpolated: Coder.interpolated, syntax.Variable: Coder.variable,
    syntax.ArrayLiteral: Coder.array, syntax.MapLiteral: Coder.map, syntax.Operation: Coder.operation,
    syntax.Logic: Coder.logic, syntax.Call: Coder.call, syntax.Chain: Coder.chain, syntax.Closure: Coder.closure,
    syntax.Block: Coder.block, syntax.If: Coder.if_else, syntax.Switch: Coder.switch, syntax.While: Coder.while_loop,
    syntax.Do: Coder.do_loop, syntax.For: Coder.for_loop, syntax.Let: Coder.let, syntax.Assignment: Coder.assignment,
    syntax.Break: Coder.leave, syntax.Continue: Coder.skip, syntax.Return: Coder.leave_function,
    syntax.Throw: Coder.throw, syntax.Try: Coder.catching,
}
