"""Compile a syntax tree into nested Python functions; each takes the frame of its call.

The compiler resolves names to frame slots (`syntax.Scope`) before anything runs. Stored values are copied (Interpreter.copied),
so that no two variables share a value; every operation, statement, loop turn and call is charged.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from svcd.rhai import interpreter, syntax, values
from svcd.rhai.interpreter import Body, Cell, ExitSignal, Frame, Interpreter, ReturnSignal, ScriptFunction
from svcd.rhai.scalars import chars
from svcd.rhai.syntax import Node, Scope
from svcd.rhai.tokens import THIS
from svcd.rhai.values import FnPointer, FunctionError, Position, Range, Value, mismatch, pieces, type_name

# Expressions whose value is always a new one, which need not be copied when it is stored.
_FRESH = (syntax.Literal, syntax.Interpolated, syntax.ArrayLiteral, syntax.MapLiteral, syntax.Operation, syntax.Call)


class _BreakSignal(Exception):
    """Unwinds to the enclosing loop at `break`, with the value of the loop."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _ContinueSignal(Exception):
    """Unwinds to the enclosing loop at `continue`."""


class Compiler:
    """Turns the syntax nodes of one text into Python functions that run on one interpreter."""

    def __init__(self, runtime: Interpreter) -> None:
        self.runtime = runtime
        self.scope = Scope(())

    def program(self, script: syntax.Script, names: Sequence[str]) -> tuple[Body, Scope]:
        """Compile a text; names: its predefined variables. Returns its body, and the scope with their slots."""
        function = {key: ScriptFunction(made.name, len(made.parameters)) for key, made in script.definitions.items()}
        self.runtime.script_functions = function
        for key, definition in script.definitions.items():
            self.scope = Scope(definition.parameters)
            function[key].body = self.compile(definition.body)
            function[key].slots = self.scope.slots
        self.scope = Scope(names)
        return self._sequence(script.statements), self.scope

    def compile(self, node: Node) -> Body:
        """Compile one node."""
        return _COMPILERS[type(node)](self, node)

    def compile_all(self, nodes: Iterable[Node]) -> list[Body]:
        return [self.compile(node) for node in nodes]

    def compile_stored(self, node: Node) -> Body:
        """Compile a node whose value is stored: it is copied unless it is always a new one."""
        run = self.compile(node)
        if isinstance(node, _FRESH) or isinstance(node, syntax.Chain) and isinstance(node.links[-1], syntax.Method):
            return run
        copied = self.runtime.copied
        return lambda frame: copied(run(frame))

    def condition(self, node: Node) -> Callable[[Frame], bool]:
        """Compile a node that must be a boolean."""
        run = self.compile(node)

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
        parts, runtime = self.compile_all(node.parts), self.runtime

        def run(frame: Frame) -> str:
            runtime.charge(len(parts) >> 2)
            pieces = [runtime.to_text(part(frame)) for part in parts]
            runtime.check_text_length(sum(map(len, pieces)))
            return runtime.new_text("".join(pieces))

        return run

    def variable(self, node: syntax.Variable) -> Body:
        find = self.cell(node)
        return lambda frame: find(frame).value

    def cell(self, node: syntax.Variable) -> Callable[[Frame], Cell]:
        """Compile the access to a variable's cell; raises FunctionError at run time if it is not defined."""
        slot = self.scope.find(node.name, node.position)
        message = "'this' not bound" if node.name == THIS else f"Variable not found: {node.name}"

        def find(frame: Frame) -> Cell:
            cell: Cell | None = None if slot is None else frame[slot]
            if cell is None:
                raise FunctionError(message, node.position)
            return cell

        return find

    def array(self, node: syntax.ArrayLiteral) -> Body:
        elements, runtime = [self.compile_stored(element) for element in node.elements], self.runtime

        def run(frame: Frame) -> list[Value]:
            runtime.charge(1 + (len(elements) >> 3))
            return [element(frame) for element in elements]

        return run

    def map(self, node: syntax.MapLiteral) -> Body:
        members, runtime = [(name, self.compile_stored(value)) for name, value in node.members], self.runtime

        def run(frame: Frame) -> dict[str, Value]:
            runtime.charge(1 + len(members))
            return {name: value(frame) for name, value in members}

        return run

    def closure(self, node: syntax.Closure) -> Body:
        outer, self.scope = self.scope, Scope(node.parameters, self.scope)
        body = self.compile(node.body)
        inner, self.scope = self.scope, outer
        count = len(node.parameters)

        def run(frame: Frame) -> FnPointer:
            function = ScriptFunction("", count)
            function.body, function.slots = _bind_captured(body, inner, frame), inner.slots
            return FnPointer("anonymous function", function, count)

        return run

    # Operators

    def operation(self, node: syntax.Operation) -> Body:
        operands, runtime, name, position = self.compile_all(node.operands), self.runtime, node.operator, node.position
        builtin, step = runtime.builtin, runtime.step
        if len(operands) == 1:
            only = operands[0]

            def run_one(frame: Frame) -> Value:
                step(position)
                value = only(frame)
                try:
                    return builtin(name, (value,)).run(runtime, value)
                except FunctionError as error:
                    raise error.at(position) from None

            return run_one
        left, right = operands

        def run(frame: Frame) -> Value:
            step(position)
            x, y = left(frame), right(frame)
            try:
                return builtin(name, (x, y)).run(runtime, x, y)
            except FunctionError as error:
                raise error.at(position) from None

        return run

    def logic(self, node: syntax.Logic) -> Body:
        if node.operator == "??":
            left, right = self.compile(node.left), self.compile(node.right)

            def either(frame: Frame) -> Value:
                value = left(frame)
                return right(frame) if value is None else value

            return either
        first, second, step = self.condition(node.left), self.condition(node.right), self.runtime.step
        decides = node.operator == "||"  # the left value that decides the result alone

        def run(frame: Frame) -> bool:
            step(node.position)
            return decides if first(frame) is decides else second(frame)

        return run

    # Chains and calls

    def chain(self, node: syntax.Chain) -> Body:
        return interpreter.read(self.root(node.root), self.steps(node.links), self.runtime)

    def root(self, node: Node) -> interpreter.Root:
        if isinstance(node, syntax.Variable):
            find = self.cell(node)

            def of_variable(frame: Frame) -> interpreter.Found:
                cell = find(frame)
                return cell.value, (cell, None, cell)

            return of_variable
        run = self.compile_stored(node)
        return lambda frame: (run(frame), None)

    def steps(self, links: Sequence[syntax.Link]) -> list[interpreter.Step]:
        steps, runtime = [], self.runtime
        for link in links:
            at, is_safe = link.position, link.is_safe
            if isinstance(link, syntax.Member):
                steps.append(interpreter.member(at, is_safe, link.name, runtime))
            elif isinstance(link, syntax.Index):
                steps.append(interpreter.index(at, is_safe, self.compile(link.index), runtime))
            else:
                assert isinstance(link, syntax.Method)
                steps.append(interpreter.method(at, is_safe, link.name, self.compile_all(link.arguments), runtime))
        return steps

    def call(self, node: syntax.Call) -> Body:
        if coder := _SPECIAL.get((node.name, len(node.arguments))):
            run = coder(self, node)
        elif node.name == "call" and node.arguments:
            run = self._call_of(node)
        else:
            run = self._call_by_name(node, self.compile_all(node.arguments))
        step, position = self.runtime.step, node.position

        def charged(frame: Frame) -> Value:
            step(position)
            try:
                return run(frame)
            except FunctionError as error:
                raise error.at(position) from None

        return charged

    def _call_by_name(self, node: syntax.Call, arguments: Sequence[Body]) -> Body:
        """Compile a call by name: a function of the script, else of a variable, else a builtin."""
        runtime, function = self.runtime, self.runtime.script_functions.get((node.name, len(arguments)))
        if function:
            call, position = runtime.call_function, node.position
            return lambda frame: call(function, [each(frame) for each in arguments], None, position)
        if self.scope.find(node.name, node.position) is not None:
            find, runtime = self.cell(syntax.Variable(node.position, node.name)), self.runtime
            builtin = self._builtin_call(node, arguments)

            def run(frame: Frame) -> Value:
                held = find(frame).value
                if type(held) is not FnPointer:
                    return builtin(frame)
                return runtime.call_pointer(held, [each(frame) for each in arguments], None, node.position)

            return run
        return self._builtin_call(node, arguments)

    def _builtin_call(self, node: syntax.Call, arguments: Sequence[Body]) -> Body:
        """Compile the call of a builtin, which may modify a variable in its first argument, like a method call."""
        runtime, name = self.runtime, node.name
        if not node.arguments or not isinstance(node.arguments[0], syntax.Variable):
            return lambda frame: runtime.call(name, [each(frame) for each in arguments])
        root, others = self.root(node.arguments[0]), arguments[1:]

        def run(frame: Frame) -> Value:
            given = [each(frame) for each in others]
            value, place = root(frame)
            if interpreter.is_constant(place):
                value, place = runtime.copied(value), None
            return interpreter.call_builtin(runtime, name, value, place, given)

        return run

    def _type_of(self, node: syntax.Call) -> Body:
        value = self.compile(node.arguments[0])
        return lambda frame: type_name(value(frame))

    def _function_named(self, node: syntax.Call) -> Body:
        """`Fn("name")`"""
        name, at = self.compile(node.arguments[0]), node.arguments[0].position

        def run(frame: Frame) -> FnPointer:
            value = name(frame)
            if type(value) is not str:
                raise mismatch(value, "string").at(at)
            return FnPointer(value, None, None)

        return run

    def _call_of(self, node: syntax.Call) -> Body:
        """`call(pointer, arguments)`"""
        pointer, *arguments = self.compile_all(node.arguments)
        call, position = self.runtime.call_pointer, node.position
        return lambda frame: call(pointer(frame), [each(frame) for each in arguments], None, position)

    def _curry(self, node: syntax.Call) -> Body:
        pointer, value = self.compile_all(node.arguments)
        runtime = self.runtime

        def run(frame: Frame) -> FnPointer:
            held = pointer(frame)
            if type(held) is not FnPointer:
                raise mismatch(held, "Fn")
            return interpreter.curry(runtime, held, [value(frame)])

        return run

    def _is_variable(self, node: syntax.Call) -> Body:
        """Compile `is_def_var("name")`: whether such a variable is visible here and defined."""
        name, visible, runtime = self.compile(node.arguments[0]), self.scope.visible(), self.runtime

        def run(frame: Frame) -> bool:
            slot = visible.get(runtime.to_text(name(frame)))
            return slot is not None and frame[slot] is not None

        return run

    def _is_function(self, node: syntax.Call) -> Body:
        """`is_def_fn("name", parameters)`"""
        name, count = self.compile_all(node.arguments)
        runtime = self.runtime

        def run(frame: Frame) -> bool:
            wanted, parameters = runtime.to_text(name(frame)), count(frame)
            return type(parameters) is int and (wanted, parameters) in runtime.script_functions

        return run

    def _exit(self, node: syntax.Call) -> Body:
        values = self.compile_all(node.arguments)

        def run(frame: Frame) -> Value:
            for value in values:
                value(frame)
            raise ExitSignal

        return run

    # Statements

    def block(self, node: syntax.Block) -> Body:
        with self.scope.block():
            return self._sequence(node.statements)

    def _sequence(self, statements: Sequence[Node]) -> Body:
        """Compile a sequence of statements with the value of the last one. Errors without a position get the statement's."""
        runs = [(self.compile(statement), statement.position) for statement in statements]
        step = self.runtime.step

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
        branches = [(self.condition(condition), self.compile(body)) for condition, body in node.branches]
        otherwise = self.compile(node.otherwise) if node.otherwise else None
        step = self.runtime.step

        def run(frame: Frame) -> Value:
            for condition, body in branches:
                step(node.position)
                if condition(frame):
                    return body(frame)
            return otherwise(frame) if otherwise else None

        return run

    def switch(self, node: syntax.Switch) -> Body:
        value = self.compile(node.value)
        cases = [self._case(case) for case in node.cases]
        runtime, cost = self.runtime, 1 + sum(1 + len(case.matches) for case in node.cases) // 4

        def run(frame: Frame) -> Value:
            held = value(frame)
            runtime.charge(cost)
            key = f"{type_name(held)} {runtime.to_text(held, is_bare=False)}"
            for matches, condition, body in cases:
                if matches(held, key) and (condition is None or condition(frame)):
                    return body(frame)
            return None

        return run

    def _case(self, case: syntax.Case) -> tuple[Callable[[Value, str], bool], Callable[[Frame], bool] | None, Body]:
        condition = self.condition(case.condition) if case.condition else None
        with self.scope.block():
            body = self.compile(case.body)
        if case.is_default:
            return (lambda value, key: True), condition, body
        keys = {f"{type_name(match)} {''.join(pieces(match))}" for match in case.matches}
        ranges = [match.values() for match in case.matches if type(match) is Range]

        def matches(value: Value, key: str) -> bool:
            return key in keys or type(value) is int and any(value in numbers for numbers in ranges)

        return matches, condition, body

    def while_loop(self, node: syntax.While) -> Body:
        condition = self.condition(node.condition) if node.condition else None
        body, step, position = self.compile(node.body), self.runtime.step, node.position

        def run(frame: Frame) -> Value:
            try:
                while condition is None or condition(frame):
                    step(position)
                    _run_body(body, frame)
            except _BreakSignal as signal:
                return signal.value
            return None

        return run

    def do_loop(self, node: syntax.Do) -> Body:
        body, condition, step = self.compile(node.body), self.condition(node.condition), self.runtime.step

        def run(frame: Frame) -> Value:
            try:
                while True:
                    step(node.position)
                    if _run_body(body, frame) and condition(frame) is node.is_until:
                        return None
            except _BreakSignal as signal:
                return signal.value

        return run

    def for_loop(self, node: syntax.For) -> Body:
        values, step = self.compile(node.values), self.runtime.step
        with self.scope.block():
            counter = self.scope.declare(node.counter, node.position) if node.counter else None
            slot = self.scope.declare(node.name, node.position)
            body = self.compile(node.body)

        def run(frame: Frame) -> Value:
            frame[slot] = element = Cell(None)
            if counter is not None:
                frame[counter] = Cell(0)
            try:
                for at, value in enumerate(self._elements_of(values(frame), node.values.position)):
                    step(node.position)
                    element.value = value
                    if counter is not None:
                        frame[counter].value = at
                    _run_body(body, frame)
            except _BreakSignal as signal:
                return signal.value
            return None

        return run

    def _elements_of(self, value: Value, position: Position) -> Iterable[Value]:
        try:
            if type(value) is list:
                array: list[Value] = self.runtime.copied(value)
                return array
            if type(value) is str:
                return chars(self.runtime, value)
        except FunctionError as error:
            raise error.at(position) from None
        if type(value) is Range:
            return value.values()
        raise FunctionError("For loop expects iterable type", position)

    def let(self, node: syntax.Let) -> Body:
        value = self.compile_stored(node.value) if node.value else lambda frame: None
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
        value = self.compile_stored(node.value)
        join = self._join(node.operator) if node.operator else None
        if isinstance(target, syntax.Chain):
            assert isinstance(root, syntax.Variable)
            assign = interpreter.assign(root.name, root.position, self.root(root), self.steps(target.links), self.runtime)
            return lambda frame: assign(frame, value(frame), join)
        find = self.cell(target)

        def run(frame: Frame) -> None:
            new = value(frame)
            cell = find(frame)
            if cell.is_constant:
                raise FunctionError(f"Cannot modify constant {target.name}", target.position)
            cell.value = join(cell.value, (cell, None, None), new) if join else new

        return run

    def _join(self, operator: str) -> Callable[[Value, interpreter.Place, Value], Value]:
        """Return the operator of an assignment such as `+=`; it appends to strings, arrays and maps in place."""
        runtime, in_place = self.runtime, f"{operator}="

        def join(held: Value, place: interpreter.Place, value: Value) -> Value:
            if operator == "+" and isinstance(held, (str, list, dict)):
                found = runtime.builtin(in_place if type(held) in (str, list, dict) else operator, (held, value))
                if found.replaces:
                    return found.run(runtime, held, value)[0]
                made = found.run(runtime, held, value)
                return held if found.changes else made
            return runtime.builtin(operator, (held, value)).run(runtime, held, value)

        return join

    def break_loop(self, node: syntax.Break) -> Body:
        value = self.compile_stored(node.value) if node.value else None

        def run(frame: Frame) -> Value:
            raise _BreakSignal(value(frame) if value else None)

        return run

    def continue_loop(self, node: syntax.Continue) -> Body:
        def run(frame: Frame) -> Value:
            raise _ContinueSignal

        return run

    def return_value(self, node: syntax.Return) -> Body:
        value = self.compile(node.value) if node.value else None

        def run(frame: Frame) -> Value:
            raise ReturnSignal(value(frame) if value else None)

        return run

    def throw(self, node: syntax.Throw) -> Body:
        value, runtime = self.compile_stored(node.value) if node.value else None, self.runtime

        def run(frame: Frame) -> Value:
            thrown = value(frame) if value else None
            raise FunctionError.throwing(thrown, runtime.to_text(thrown)[:values.QUOTED_LENGTH], node.position)

        return run

    def try_catch(self, node: syntax.Try) -> Body:
        body, name = self.compile(node.body), node.name
        with self.scope.block():
            slot = self.scope.declare(name, node.position) if name else None
            handler = self.compile(node.handler)

        def run(frame: Frame) -> Value:
            try:
                return body(frame)
            except FunctionError as error:
                if error.is_limit:
                    raise
                caught = error
            if slot is not None:  # the thrown value, or an object map with message, line and position
                at = caught.position
                place = {"line": at.line, "position": at.column} if at else {}
                frame[slot] = Cell(caught.thrown if caught.has_thrown else {"message": caught.message, **place})
            try:
                return handler(frame)
            except FunctionError as error:
                if error.has_thrown and error.thrown is None:  # an empty `throw` in a handler rethrows
                    raise caught.at(error.position) from None
                raise

        return run


def _bind_captured(body: Body, inner: Scope, frame: Frame) -> Body:
    """Return the body of a closure that first puts the cells of captured variables into its frame."""
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


def _run_body(body: Body, frame: Frame) -> bool:
    """Run the body of a loop once; return False if `continue` ended it."""
    try:
        body(frame)
    except _ContinueSignal:
        return False
    return True


_COMPILERS: Mapping[type[Node], Callable[[Compiler, Any], Body]] = {
    syntax.Literal: Compiler.literal, syntax.Interpolated: Compiler.interpolated, syntax.Variable: Compiler.variable,
    syntax.ArrayLiteral: Compiler.array, syntax.MapLiteral: Compiler.map, syntax.Operation: Compiler.operation,
    syntax.Logic: Compiler.logic, syntax.Call: Compiler.call, syntax.Chain: Compiler.chain, syntax.Closure: Compiler.closure,
    syntax.Block: Compiler.block, syntax.If: Compiler.if_else, syntax.Switch: Compiler.switch, syntax.While: Compiler.while_loop,
    syntax.Do: Compiler.do_loop, syntax.For: Compiler.for_loop, syntax.Let: Compiler.let, syntax.Assignment: Compiler.assignment,
    syntax.Break: Compiler.break_loop, syntax.Continue: Compiler.continue_loop, syntax.Return: Compiler.return_value,
    syntax.Throw: Compiler.throw, syntax.Try: Compiler.try_catch,
}
_SPECIAL: Mapping[tuple[str, int], Callable[[Compiler, syntax.Call], Body]] = {
    ("type_of", 1): Compiler._type_of, ("Fn", 1): Compiler._function_named, ("curry", 2): Compiler._curry,
    ("is_def_var", 1): Compiler._is_variable, ("is_def_fn", 2): Compiler._is_function,
    ("exit", 0): Compiler._exit, ("exit", 1): Compiler._exit,
}
