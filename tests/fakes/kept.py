"""How much a machine keeps: objects that can be reached from it, each once. Classes, functions and modules are everybody's."""

import gc
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

_EVERYBODYS = type, FunctionType, BuiltinFunctionType, ModuleType


def num_kept(root: object) -> int:
    """Numbers and texts count too: a name that stays is an object that stays. What is equal and shared counts once."""
    seen: dict[int, object] = {}
    waiting: list[object] = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _EVERYBODYS):
            continue
        seen[id(one)] = one
        waiting += [one.__self__] if isinstance(one, MethodType) else gc.get_referents(one)
        # The collector does not look at keys that are texts: they can be in no cycle.
        waiting += one if isinstance(one, dict) else ()
    return len(seen)
