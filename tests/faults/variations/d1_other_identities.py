"""Keys with a hash of a text, which changes with the process, and with an object in a dataclass."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, KeyFunction, StubKernel


class Layout:
    """Compared by identity."""


ROW_MAJOR = Layout()


class Mixer(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        block: int
        layout: object

    def dispatch(self, *, block, layout):
        return self.CompileKey(block, layout)

    def get_warmup_keys(self, layout):
        return [self.CompileKey(64, layout)]


mixer = Mixer()


def hashed(*, name):
    return (len(name), hash(name))


def spelt(*, name):
    return (len(name), name)


NAMES = [{"name": "silu"}, {"name": "gelu"}]

HASHED = Fault(
    "a hash of a text is salted in each process",
    kernel=KeyFunction("activation", hashed),
    declared=NAMES,
    launches=NAMES,
    expected=[Expected("KEY-UNSTABLE", field="key1", count=1)],
)
IDENTITY = Fault(
    "a field of a key class is an object",
    kernel=mixer,
    register={"layout": ROW_MAJOR},
    launches=[{"block": 64, "layout": ROW_MAJOR}],
    expected=[Expected("KEY-UNSTABLE", kernel="Mixer", field="layout", count=1)],
)
TWIN = Fault(
    "the text itself",
    kernel=KeyFunction("activation", spelt),
    declared=NAMES,
    launches=NAMES,
)
TWIN_NAMED = Fault(
    "the layout by name",
    kernel=mixer,
    register={"layout": "row-major"},
    launches=[{"block": 64, "layout": "row-major"}],
)
