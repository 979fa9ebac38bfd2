"""Tables of cases in one test: a case takes microseconds, a separate test would take milliseconds."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for each value of one of its arguments; the first failure ends it, with a note that names the value.

    For tests that do not change their other arguments: a fixture is created once for all values.
    """
    table = list(values)

    def looped(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def plain(**given: Any) -> None:
            for value in table:
                with noted(name, value):
                    test(**given, **{name: value})

        @functools.wraps(test)
        async def coroutine(**given: Any) -> None:
            for value in table:
                with noted(name, value):
                    await test(**given, **{name: value})

        found: Any = coroutine if inspect.iscoroutinefunction(test) else plain
        signature = inspect.signature(test)
        rest = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        found.__signature__ = signature.replace(parameters=rest)  # pytest reads fixtures and parameters from this
        return found  # type: ignore[no-any-return]

    return looped


@contextlib.contextmanager
def noted(name: str, value: object) -> Iterator[None]:
    """Add the case to a failure in the block: by the value's name, if it has one."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name}={getattr(value, 'name', value)!r}")
        raise
