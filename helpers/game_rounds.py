"""The rounds of the call-queue game: functions and queues only; what happens is always run."""

from __future__ import annotations

from helpers.call_queue import CallCard, CallQueue

_DOUBLE = """\
def double(x):
    return torch.relu(x) * 2
"""
_SCALED = """\
def scaled(x, scale=2.0, kind="relu"):
    y = torch.relu(x) if kind == "relu" else torch.tanh(x)
    return y * scale
"""
_COUNTER = """\
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.heat = 0, 1.5

    def forward(self, x):
        return x * self.heat + self.seen
"""
_LOOP = """\
def refine(x, steps):
    for _ in range(steps):
        x = x + 0.1 * torch.sin(x)
    return x
"""


def _sizes(*rows: int) -> tuple[CallCard, ...]:
    return tuple(CallCard((n, 3)) for n in rows)


def _with(**values: object) -> CallCard:
    return CallCard(values=values)


ROUNDS: tuple[CallQueue, ...] = (
    CallQueue(
        "1 Sizes",
        _DOUBLE,
        _sizes(8, 8, 3, 5, 1, 8),
        hint="Only the number of rows changes, as at the end of an epoch.",
    ),
    CallQueue(
        "2 A number and a word",
        _SCALED,
        (
            *(_with(scale=scale) for scale in (2.0, 3.0, 4.0, 2.0, 2)),
            _with(kind="tanh"),
            _with(kind="gelu"),
        ),
        hint="2.0 and 2 are of two types. A word is compared as a whole.",
    ),
    CallQueue(
        "3 What the call does not show",
        _DOUBLE,
        (
            CallCard((4, 4)),
            CallCard((4, 4), grad="under no_grad"),
            CallCard((4, 4), "bfloat16"),
            CallCard((4, 4), layout="transposed"),
            CallCard((4, 4), grad="requires grad"),
            CallCard((4, 4), grad="under no_grad"),
            CallCard((4, 4)),
        ),
        hint="The shape is the same in each call.",
    ),
    CallQueue(
        "4 Attributes of a model",
        _COUNTER,
        (
            CallCard(),
            CallCard(attributes={"heat": 2.5}),
            CallCard(attributes={"heat": 3.5}),
            CallCard(attributes={"seen": 1}),
            CallCard(attributes={"seen": 2}),
            CallCard(attributes={"seen": 0}),
        ),
        hint="One attribute is a float, the other an int. Versions of torch differ here.",
    ),
    CallQueue(
        "5 dynamic=True",
        _DOUBLE,
        (
            CallCard((8, 3)),
            CallCard((5, 3)),
            CallCard((5, 7)),
            CallCard((1, 3)),
            CallCard((1, 9)),
            CallCard((7, 7), layout="transposed"),
        ),
        options={"dynamic": True},
        hint="Compiled with dynamic=True: no size is taken as fixed, if that can be avoided.",
    ),
    CallQueue(
        "6 The limit",
        _LOOP,
        (
            _with(steps=9),
            _with(steps=10),
            _with(steps=5),
            CallCard((6, 3), values={"steps": 5}),
            _with(steps=10),
        ),
        made=tuple(_with(steps=steps) for steps in range(2, 9)),
        made_text="Seven calls were made already, with steps=2, 3, 4, 5, 6, 7, 8: seven graphs.",
        hint="torch keeps at most 8 graphs of one function.",
    ),
)

OWN = CallQueue("Your own queue", _SCALED, (), hint="Change the function, then add calls.")
