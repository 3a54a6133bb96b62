"""Expressions turned into what runs: one Python function per part, which takes the frame of its call.

Knows what literals, operators, chains, calls and closures do; statements are in `code`. Values that are stored are
copied (Machine.own); each operation, chain and call counts. What stands where is found beforehand (`scopes`).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from svcd.rhai import chains, errors, syntax
from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.interpreter import Body, Cell, Exited, Frame, Machine, Returned, Scripted
from svcd.rhai.strings import chars
from svcd.rhai.syntax import Node, Scope
from svcd.rhai.tokens import THIS
from svcd.rhai.values import Pointer, Range, Value, mismatch, pieces, type_name

# Parts whose values nobody else can hold.
_FRESH = (syntax.Literal, syntax.Interpolated, syntax.ArrayLiteral, syntax.MapLiteral, syntax.Operation, syntax.Call)


class _Left(Exception):
    """`break`: on its way to the loop, with the loop's value."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _Skipped(Exception):
    """`continue`: on its way to the loop."""


class Compiler:
    """Turns the syntax nodes of one text into Python functions that run on one interpreter."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.scope = Scope(())

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

    def nodes(self, nodes: Iterable[Node]) -> list[Body]:
        return [self.node(node) for node in nodes]

    def owned(self, node: Node) -> Body:
        """A part whose value is stored: a copy, unless nobody else can hold it."""
        run = self.node(node)
        if isinstance(node, _FRESH) or isinstance(node, syntax.Chain) and isinstance(node.links[-1], syntax.Method):
            return run
        own = self.machine.own
        return lambda frame: own(run(frame))

    def truth(self, node: Node) -> Callable[[Frame], bool]:
        """A part that must be a boolean."""
        run = self.node(node)

        def test(frame: Frame) -> bool:
            value = run(frame)
            if value is True or value is False:
                return value
            raise mismatch(value, "bool").at(node.position)

        return test

    # Values

    def literal(self, node: syntax.Literal) -> Body:
        value = node.value
        return lambda frame: value

    def interpolated(self, node: syntax.Interpolated) -> Body:
        parts, machine = self.nodes(node.parts), self.machine

        def run(frame: Frame) -> str:
            machine.charge(len(parts) >> 2)
            pieces = [machine.shown(part(frame)) for part in parts]
            machine.room_for_text(sum(map(len, pieces)))
            return machine.text("".join(pieces))

        return run

    def variable(self, node: syntax.Variable) -> Body:
        find = self.cell(node)
        return lambda frame: find(frame).value

    def cell(self, node: syntax.Variable) -> Callable[[Frame], Cell]:
        """Where a variable is. Raises in the run when it is not there."""
        slot = self.scope.find(node.name, node.position)
        told = "'this' not bound" if node.name == THIS else f"Variable not found: {node.name}"

        def find(frame: Frame) -> Cell:
            cell: Cell | None = None if slot is None else frame[slot]
            if cell is None:
                raise FunctionError(told, node.position)
            return cell

        return find

    def array(self, node: syntax.ArrayLiteral) -> Body:
        elements, machine = [self.owned(element) for element in node.elements], self.machine

        def run(frame: Frame) -> list[Value]:
            machine.charge(1 + (len(elements) >> 3))
            return [element(frame) for element in elements]

        return run

    def map(self, node: syntax.MapLiteral) -> Body:
        members, machine = [(name, self.owned(value)) for name, value in node.members], self.machine

        def run(frame: Frame) -> dict[str, Value]:
            machine.charge(1 + len(members))
            return {name: value(frame) for name, value in members}

        return run

    def closure(self, node: syntax.Closure) -> Body:
        outer, self.scope = self.scope, Scope(node.parameters, self.scope)
        body = self.node(node.body)
        inner, self.scope = self.scope, outer
        count = len(node.parameters)

        def run(frame: Frame) -> Pointer:
            scripted = Scripted("", count)
            scripted.body, scripted.slots = _with_captured(body, inner, frame), inner.slots
            return Pointer("anonymous function", scripted, count)

        return run

    # Operators

    def operation(self, node: syntax.Operation) -> Body:
        operands, machine, name, position = self.nodes(node.operands), self.machine, node.operator, node.position
        native, step = machine.native, machine.step
        if len(operands) == 1:
            only = operands[0]

            def run_one(frame: Frame) -> Value:
                step(position)
                value = only(frame)
                try:
                    return native(name, (value,)).run(machine, value)
                except FunctionError as error:
                    raise error.at(position) from None

            return run_one
        left, right = operands

        def run(frame: Frame) -> Value:
            step(position)
            x, y = left(frame), right(frame)
            try:
                return native(name, (x, y)).run(machine, x, y)
            except FunctionError as error:
                raise error.at(position) from None

        return run

    def logic(self, node: syntax.Logic) -> Body:
        if node.operator == "??":
            left, right = self.node(node.left), self.node(node.right)

            def either(frame: Frame) -> Value:
                value = left(frame)
                return right(frame) if value is None else value

            return either
        first, second, step = self.truth(node.left), self.truth(node.right), self.machine.step
        decides = node.operator == "||"  # what the left side must be for the right one not to matter

        def run(frame: Frame) -> bool:
            step(node.position)
            return decides if first(frame) is decides else second(frame)

        return run

    # Chains and calls

    def chain(self, node: syntax.Chain) -> Body:
        return chains.read(self.root(node.root), self.steps(node.links), self.machine)

    def root(self, node: Node) -> chains.Root:
        if isinstance(node, syntax.Variable):
            find = self.cell(node)

            def of_variable(frame: Frame) -> chains.Found:
                cell = find(frame)
                return cell.value, (cell, None, cell)

            return of_variable
        run = self.owned(node)
        return lambda frame: (run(frame), None)

    def steps(self, links: Sequence[syntax.Link]) -> list[chains.Step]:
        return [self._step(link) for link in links]

    def _step(self, link: syntax.Link) -> chains.Step:
        at, is_safe, machine = link.position, link.is_safe, self.machine
        if isinstance(link, syntax.Member):
            return chains.member(at, is_safe, link.name, machine)
        if isinstance(link, syntax.Index):
            return chains.index(at, is_safe, self.node(link.index), machine)
        assert isinstance(link, syntax.Method)
        return chains.method(at, is_safe, link.name, self.nodes(link.arguments), machine)

    def call(self, node: syntax.Call) -> Body:
        run = self._special(node) or self._ordinary(node, self.nodes(node.arguments))
        step, position = self.machine.step, node.position

        def counted(frame: Frame) -> Value:
            step(position)
            try:
                return run(frame)
            except FunctionError as error:
                raise error.at(position) from None

        return counted

    def _special(self, node: syntax.Call) -> Body | None:
        coder = _SPECIAL.get((node.name, len(node.arguments)))
        if coder:
            return coder(self, node)
        return self._call_of(node) if node.name == "call" and node.arguments else None

    def _ordinary(self, node: syntax.Call, arguments: Sequence[Body]) -> Body:
        """A function of the text, of a variable, or of the language: the first of these that has the name."""
        machine, scripted = self.machine, self.machine.scripted.get((node.name, len(arguments)))
        if scripted:
            call, position = machine.call_scripted, node.position
            return lambda frame: call(scripted, [each(frame) for each in arguments], None, position)
        if self.scope.find(node.name, node.position) is not None:
            return self._pointed(node, arguments)
        return self._native(node, arguments)

    def _pointed(self, node: syntax.Call, arguments: Sequence[Body]) -> Body:
        """A call of a variable, which may hold a function."""
        find, machine = self.cell(syntax.Variable(node.position, node.name)), self.machine
        native = self._native(node, arguments)

        def run(frame: Frame) -> Value:
            held = find(frame).value
            if type(held) is not Pointer:
                return native(frame)
            return machine.call_pointer(held, [each(frame) for each in arguments], None, node.position)

        return run

    def _native(self, node: syntax.Call, arguments: Sequence[Body]) -> Body:
        """A function of the language; a variable as its first argument is changed as by a method."""
        machine, name = self.machine, node.name
        if not node.arguments or not isinstance(node.arguments[0], syntax.Variable):
            return lambda frame: machine.call(name, [each(frame) for each in arguments])
        root, others = self.root(node.arguments[0]), arguments[1:]

        def run(frame: Frame) -> Value:
            given = [each(frame) for each in others]
            value, place = root(frame)
            if chains.is_constant(place):
                value, place = machine.own(value), None
            return chains.native(machine, name, value, place, given)

        return run

    def _type_of(self, node: syntax.Call) -> Body:
        value = self.node(node.arguments[0])
        return lambda frame: type_name(value(frame))

    def _function_named(self, node: syntax.Call) -> Body:
        """`Fn("name")`"""
        name, at = self.node(node.arguments[0]), node.arguments[0].position

        def run(frame: Frame) -> Pointer:
            value = name(frame)
            if type(value) is not str:
                raise mismatch(value, "string").at(at)
            return Pointer(value, None, None)

        return run

    def _call_of(self, node: syntax.Call) -> Body:
        """`call(pointer, arguments)`"""
        pointer, *arguments = self.nodes(node.arguments)
        call, position = self.machine.call_pointer, node.position
        return lambda frame: call(pointer(frame), [each(frame) for each in arguments], None, position)

    def _curry(self, node: syntax.Call) -> Body:
        pointer, value = self.nodes(node.arguments)
        machine = self.machine

        def run(frame: Frame) -> Pointer:
            held = pointer(frame)
            if type(held) is not Pointer:
                raise mismatch(held, "Fn")
            return chains.curry(machine, held, [value(frame)])

        return run

    def _is_variable(self, node: syntax.Call) -> Body:
        """`is_def_var("name")`, of the variables that are visible here."""
        name, visible, machine = self.node(node.arguments[0]), self.scope.visible(), self.machine

        def run(frame: Frame) -> bool:
            slot = visible.get(machine.shown(name(frame)))
            return slot is not None and frame[slot] is not None

        return run

    def _is_function(self, node: syntax.Call) -> Body:
        """`is_def_fn("name", parameters)`"""
        name, count = self.nodes(node.arguments)
        machine = self.machine

        def run(frame: Frame) -> bool:
            wanted, parameters = machine.shown(name(frame)), count(frame)
            return type(parameters) is int and (wanted, parameters) in machine.scripted

        return run

    def _exit(self, node: syntax.Call) -> Body:
        values = self.nodes(node.arguments)

        def run(frame: Frame) -> Value:
            for value in values:
                value(frame)
            raise Exited

        return run

    # Statements

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


def _with_captured(body: Body, inner: Scope, frame: Frame) -> Body:
    """The body of a closure, with the variables that it sees around it put into its frame."""
    shared = []
    for outer, slot, name, position in inner.captures:
        if frame[outer] is None:
            raise FunctionError(f"Variable not found: {name}", position)
        shared.append((slot, frame[outer]))
    if not shared:
        return body

    def run(own: Frame) -> Value:
        for slot, cell in shared:
            own[slot] = cell
        return body(own)

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


_CODERS: Mapping[type[Node], Callable[[Compiler, Any], Body]] = {
    syntax.Literal: Compiler.literal, syntax.Interpolated: Compiler.interpolated, syntax.Variable: Compiler.variable,
    syntax.ArrayLiteral: Compiler.array, syntax.MapLiteral: Compiler.map, syntax.Operation: Compiler.operation,
    syntax.Logic: Compiler.logic, syntax.Call: Compiler.call, syntax.Chain: Compiler.chain, syntax.Closure: Compiler.closure,
    syntax.Block: Compiler.block, syntax.If: Compiler.if_else, syntax.Switch: Compiler.switch, syntax.While: Compiler.while_loop,
    syntax.Do: Compiler.do_loop, syntax.For: Compiler.for_loop, syntax.Let: Compiler.let, syntax.Assignment: Compiler.assignment,
    syntax.Break: Compiler.leave, syntax.Continue: Compiler.skip, syntax.Return: Compiler.leave_function,
    syntax.Throw: Compiler.throw, syntax.Try: Compiler.catching,
}
_SPECIAL: Mapping[tuple[str, int], Callable[[Compiler, syntax.Call], Body]] = {
    ("type_of", 1): Compiler._type_of, ("Fn", 1): Compiler._function_named,
    ("curry", 2): Compiler._curry, ("is_def_var", 1): Compiler._is_variable,
    ("is_def_fn", 2): Compiler._is_function, ("exit", 0): Compiler._exit,
    ("exit", 1): Compiler._exit,
}
