"""B9: a provider of keys asks for the model's name; a new model uses the kernel under another."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, NoKeys, StubKernel


class SparsePrefill(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        heads: int

    def dispatch(self, *, heads):
        return self.CompileKey(heads)

    def get_warmup_keys(self, model_type, has_indexer=None):
        if has_indexer is None:  # the provider as it was
            return [self.CompileKey(64)] if model_type in ("glm5", "deepseek_v32") else []
        return [self.CompileKey(64)] if has_indexer else NoKeys("the model has no indexer")


prefill = SparsePrefill()

FAULT = Fault(
    "an active provider gives no key for a model that launches the kernel",
    kernel=prefill,
    register={"model_type": "glm5_next"},
    launches=[{"heads": 64}],
    expected=[Expected("UNDECLARED", kernel="SparsePrefill")],
)
TWIN = Fault(
    "the provider asks for what the kernel needs",
    kernel=prefill,
    register={"model_type": "glm5_next", "has_indexer": True},
    launches=[{"heads": 64}],
)
TWIN_WITHOUT = Fault(
    "a model without the kernel says so",
    kernel=prefill,
    register={"model_type": "glm5_next", "has_indexer": False},
)
