"""Scenario files: what they become, and every mistake with its place in the file."""

from __future__ import annotations

import hashlib

import pytest

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.errors import ScenarioError
from jitwarm.scenario import Case, Scenario, Scheduler, Step
from jitwarm.scenario_file import find, load

HEAD = 'schema = 1\nname = "s"\nmodel = "m"\n'
MATRIX = HEAD + (
    'quick = ["dcp=1", "dcp=8,arch=sm100"]\n'
    '[matrix]\ndcp = [1, 8]\narch = ["sm90", "sm100"]\n'
    '[parallel]\ntp = 8\ndcp = "{dcp}"\n'
)


@pytest.fixture
def write(tmp_path):
    def write_(text, name="s.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_


def problem(path, overrides=None):
    """The error without the file's name."""
    with pytest.raises(ScenarioError) as error:
        load(path, overrides)
    assert error.value.exit_code == 2
    assert str(error.value) == f"{path}: {error.value.path}: {error.value.problem}"
    return f"{error.value.path}: {error.value.problem}"


def test_a_small_scenario_has_one_case_with_the_defaults(write):
    path = write(HEAD)
    scenario = load(path)
    assert scenario == Scenario(
        path=str(path),
        name="s",
        cases=(Case(schema=1, name="s", model="m"),),
        quick=(),
        sha256=hashlib.sha256(HEAD.encode()).hexdigest(),
    )
    (case,) = scenario.cases
    assert (case.label, case.arch, case.axes) == ("", "sm90", {})
    assert (case.planned_ranks, case.replayed_ranks) == ((0,), (0,))


def test_a_matrix_gives_a_case_for_each_combination_in_order(write):
    scenario = load(write(MATRIX))
    assert [case.label for case in scenario.cases] == [
        "dcp=1 arch=sm90",
        "dcp=1 arch=sm100",
        "dcp=8 arch=sm90",
        "dcp=8 arch=sm100",
    ]
    assert [(case.parallel.dcp, case.arch) for case in scenario.cases] == [
        (1, "sm90"),
        (1, "sm100"),
        (8, "sm90"),
        (8, "sm100"),
    ]
    assert scenario.cases[0].axes == {"dcp": 1, "arch": "sm90"}


@pytest.mark.parametrize(
    ("selectors", "labels"),
    [
        ((), ["dcp=1 arch=sm90", "dcp=1 arch=sm100", "dcp=8 arch=sm90", "dcp=8 arch=sm100"]),
        (("dcp=8",), ["dcp=8 arch=sm90", "dcp=8 arch=sm100"]),
        (("dcp=8,arch=sm90",), ["dcp=8 arch=sm90"]),
        ((" arch = sm90 , dcp = 8 ",), ["dcp=8 arch=sm90"]),
        (("arch=sm100", "dcp=1"), ["dcp=1 arch=sm90", "dcp=1 arch=sm100", "dcp=8 arch=sm100"]),
    ],
)
def test_selection(write, selectors, labels):
    assert [case.label for case in load(write(MATRIX)).select(selectors)] == labels


@pytest.mark.parametrize("selector", ["dcp=3", "dcp", "tp=8", "", "dcp=8,arch=sm80"])
def test_a_selector_without_a_case_is_an_error(write, selector):
    scenario = load(write(MATRIX))
    with pytest.raises(ScenarioError) as error:
        scenario.select((selector,))
    assert (error.value.path, error.value.problem) == (
        "$.matrix",
        (
            f"no case matches {selector!r}; there are: dcp=1 arch=sm90; dcp=1 arch=sm100; "
            "dcp=8 arch=sm90; dcp=8 arch=sm100"
        ),
    )


def test_a_case_of_a_scenario_without_a_matrix_can_be_selected_by_its_arch(write):
    scenario = load(write(HEAD + 'arch = "sm100"\n'))
    assert len(scenario.select(("arch=sm100",))) == 1
    with pytest.raises(ScenarioError, match="no case matches 'arch=sm90'"):
        scenario.select(("arch=sm90",))


def test_placeholders_keep_the_type_and_work_inside_text(write):
    text = MATRIX.replace('name = "s"', 'name = "s-{dcp}"').replace(
        'model = "m"', 'model = "m"\nattention_backend = "FA{dcp}-{arch}"'
    )
    case = load(write(text)).cases[3]
    assert (case.name, case.attention_backend) == ("s-8", "FA8-sm100")
    assert type(case.parallel.dcp) is int


def test_overrides_reach_any_field(write):
    overrides = {
        "scheduler.max_num_seqs": 3,
        "traffic.seed": 9,
        "parallel.dcp": 4,
        "matrix.arch": ["sm120"],
        "attention_backend": "FA",
    }
    path = write(
        MATRIX.replace("dcp = [1, 8]\n", "").replace('quick = ["dcp=1", "dcp=8,arch=sm100"]\n', "")
    )
    (case,) = load(path, overrides).cases
    assert (case.scheduler.max_num_seqs, case.traffic.seed, case.parallel.dcp) == (3, 9, 4)
    assert (case.arch, case.attention_backend) == ("sm120", "FA")


def test_explicit_steps(write):
    text = HEAD + (
        "[[traffic.step]]\ndecode_lens = [1, 15]\npadded = 2\n"
        "[[traffic.step]]\nprefill_chunks = [5]\nprefill_contexts = [3]\n"
    )
    assert load(write(text)).cases[0].traffic.step == (
        Step(decode_lens=(1, 15), padded=2),
        Step(prefill_chunks=(5,), prefill_contexts=(3,)),
    )


@pytest.mark.parametrize(
    ("dcp", "rank", "planned", "replayed"),
    [
        (1, '"each"', (0,), (0,)),
        (2, '"each"', (0, 1), (0, 1)),
        (8, '"each"', tuple(range(8)), (0, 1, 7)),
        (8, "3", (3,), (3,)),
    ],
)
def test_ranks(write, dcp, rank, planned, replayed):
    text = f"{HEAD}[parallel]\ntp = 8\ndcp = {dcp}\ndcp_rank = {rank}\n"
    (case,) = load(write(text)).cases
    assert (case.planned_ranks, case.replayed_ranks) == (planned, replayed)


def test_the_engine_configuration_of_a_rank(write):
    text = HEAD + (
        'attention_backend = "FA"\n[parallel]\ntp = 4\ndcp = 2\ncp_kv_cache_interleave_size = 8\n'
        '[cache]\nblock_size = 16\nnum_blocks = 7\nkv_cache_dtype = "fp8"\n'
        "[scheduler]\nmax_num_seqs = 3\nmax_num_batched_tokens = 5\nmax_model_len = 11\n"
        "[warmup]\nenable_jit_warmup = false\n"
    )
    hf = HFConfig(index_topk=9)
    config = load(write(text)).cases[0].engine_config(1, hf)
    assert isinstance(config, EngineConfig)
    parallel = config.parallel_config
    assert (parallel.tensor_parallel_size, parallel.decode_context_parallel_size) == (4, 2)
    assert (parallel.cp_kv_cache_interleave_size, parallel.dcp_rank) == (8, 1)
    cache = config.cache_config
    assert (cache.block_size, cache.num_blocks, cache.cache_dtype) == (16, 7, "fp8")
    scheduler = config.scheduler_config
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (3, 5)
    assert (config.model_config.max_model_len, config.model_config.hf_config) == (11, hf)
    assert config.kernel_config.enable_jit_warmup is False
    assert config.attention_backend == "FA"


def with_(text):
    return HEAD + text


MISTAKES = {
    "unknown field": (
        with_("[scheduler]\nmax_num_seq = 3\n"),
        "$.scheduler.max_num_seq: unknown field; did you mean max_num_seqs?",
    ),
    "unknown field, nothing near": (
        with_("[cache]\nzzz = 3\n"),
        "$.cache.zzz: unknown field; known fields: block_size, num_blocks, kv_cache_dtype",
    ),
    "unknown table": (with_("[shedule]\n"), None),
    "a field of the resolved case": (
        with_("[axes]\ndcp = 1\n"),
        "$.axes: unknown field; the matrix is written as [matrix]",
    ),
    "unknown field of a step": (
        with_("[[traffic.step]]\ndecode_lens = [1]\ndecode_len = 1\n"),
        "$.traffic.step[0].decode_len: unknown field; did you mean decode_lens?",
    ),
    "text for a number": (
        with_('[parallel]\ndcp = "x"\n'),
        '$.parallel.dcp: expected int >= 1, got "x"',
    ),
    "too small": (with_("[parallel]\ndcp = 0\n"), "$.parallel.dcp: expected int >= 1, got 0"),
    "a boolean for a number": (
        with_("[cache]\nblock_size = true\n"),
        "$.cache.block_size: expected int >= 1, got true",
    ),
    "a fraction for a number": (
        with_("[traffic]\nseed = 0.5\n"),
        "$.traffic.seed: expected int >= 0, got 0.5",
    ),
    "a number for text": (
        with_("[cache]\nkv_cache_dtype = 8\n"),
        "$.cache.kv_cache_dtype: expected str, got 8",
    ),
    "a list for a table": (with_("cache = [1]\n"), "$.cache: expected a table, got a list"),
    "a table for a number": (
        with_("[cache.block_size]\n"),
        "$.cache.block_size: expected int >= 1, got a table",
    ),
    "inside a list": (
        with_("[[traffic.step]]\ndecode_lens = [1, 0]\n"),
        "$.traffic.step[0].decode_lens[1]: expected int >= 1, got 0",
    ),
    "text inside a list": (
        with_('[[traffic.step]]\ndecode_lens = [1]\n[[traffic.step]]\nprefill_chunks = ["y"]\n'),
        '$.traffic.step[1].prefill_chunks[0]: expected int >= 1, got "y"',
    ),
    "negative weight": (
        with_("[traffic.mix]\ndecode = -1.0\n"),
        "$.traffic.mix.decode: expected float >= 0.0, got -1.0",
    ),
    "missing field": ('schema = 1\nname = "s"\n', "$: object missing required field model"),
    "another schema": (HEAD.replace("1", "2"), "$.schema: invalid enum value 2"),
    "a bad name": (HEAD.replace('"s"', '"../s"'), None),
    "quick is no list": (with_('quick = "dcp=1"\n'), '$.quick: expected a list, got "dcp=1"'),
    "quick matches nothing": (
        with_('quick = ["dcp=1"]\n'),
        "$.matrix: no case matches 'dcp=1'; there are: ",
    ),
    "axis is no list": (
        with_('[matrix]\narch = "sm90"\n'),
        '$.matrix.arch: expected a list, got "sm90"',
    ),
    "axis of lists": (
        with_("[matrix]\narch = [[1]]\n"),
        "$.matrix.arch[0]: expected bool | int | float | str, got a list",
    ),
    "matrix is no table": (with_("matrix = 3\n"), "$.matrix: expected a table, got 3"),
    "empty axis": (
        with_("[matrix]\narch = []\n"),
        "$.matrix.arch: is empty, so there would be no case",
    ),
    "nan on an axis": (
        with_('attention_backend = "{x}"\n[matrix]\nx = [1.5, nan]\n'),
        "$.matrix.x: nan is not a finite number",
    ),
    "infinity on an axis": (
        with_('attention_backend = "{x}"\n[matrix]\nx = [1, -inf]\n'),
        "$.matrix.x: -inf is not a finite number",
    ),
    "a name that ends in a new line": (HEAD.replace('"s"', '"s\\n"'), None),
    "nested lists": (with_(f"x = {'[' * 3000}{']' * 3000}\n"), "$: is nested too deeply"),
    "nested tables": (with_(f"{'.'.join('x' * 3000)} = 1\n"), "$: is nested too deeply"),
    "a number of many digits": (with_(f"x = {'1' * 5000}\n"), None),
    "a value twice": (
        with_('[matrix]\narch = ["sm90", "sm90"]\n'),
        "$.matrix.arch: names a value twice",
    ),
    "unused axis": (
        with_("[matrix]\ndcp = [1, 2]\n"),
        "$.matrix.dcp: nothing in the scenario uses {dcp}, so its cases would all be the same",
    ),
    "unused arch axis": (
        'arch = "sm90"\n' + with_('[matrix]\narch = ["sm90", "sm100"]\n'),
        "$.matrix.arch: nothing in the scenario uses {arch}, so its cases would all be the same",
    ),
    "unknown placeholder": (
        with_('[matrix]\narch = ["sm90"]\n[parallel]\ndcp = "{dpc}"\n'),
        "$.parallel.dcp: unknown placeholder in '{dpc}': the matrix has arch",
    ),
    "placeholder without a matrix": (
        with_('[[traffic.step]]\ndecode_lens = ["{n}"]\n'),
        "$.traffic.step[0].decode_lens[0]: unknown placeholder in '{n}': the matrix has none",
    ),
    "placeholder of another type": (
        with_('[matrix]\narch = ["sm90"]\n[parallel]\ndcp = "{arch}"\n'),
        '$.parallel.dcp: expected int >= 1, got "sm90"',
    ),
    "unknown arch": (
        with_('arch = "sm70"\n'),
        "$.arch: unknown arch 'sm70': expected one of sm80, sm90, sm100, sm103, sm120, sm121",
    ),
    "dcp does not divide": (
        with_("[parallel]\ntp = 8\ndcp = 3\n"),
        (
            "$.parallel.dcp: dcp 3 does not divide tp 8: each rank of a DCP group is a rank of "
            "the TP group"
        ),
    ),
    "interleave does not divide": (
        with_("[parallel]\ncp_kv_cache_interleave_size = 3\n"),
        "$.parallel.cp_kv_cache_interleave_size: interleave 3 does not divide the block size 64",
    ),
    "rank too large": (
        with_("[parallel]\ntp = 2\ndcp = 2\ndcp_rank = 2\n"),
        "$.parallel.dcp_rank: rank 2 of a group of 2",
    ),
    "rank is another word": (
        with_('[parallel]\ndcp_rank = "all"\n'),
        None,
    ),
    "no weight": (
        with_("[traffic.mix]\ndecode = 0\nprefill = 0\nmixed = 0\npadded = 0\n"),
        "$.traffic.mix: all weights are 0",
    ),
    "infinite weight": (
        with_("[traffic.mix]\ndecode = inf\n"),
        "$.traffic.mix: a weight is not a finite number",
    ),
    "weight that is no number": (
        with_("[traffic.mix]\ndecode = nan\n"),
        "$.traffic.mix.decode: expected float >= 0.0, got NaN",
    ),
    "empty step": (with_("[[traffic.step]]\npadded = 1\n"), "$.traffic.step[0]: has no request"),
    "contexts without chunks": (
        with_("[[traffic.step]]\nprefill_chunks = [1, 2]\nprefill_contexts = [1]\n"),
        "$.traffic.step[0].prefill_contexts: must name one context for each prefill chunk",
    ),
    "too many rows": (
        with_(
            "[scheduler]\nmax_num_seqs = 2\n[[traffic.step]]\ndecode_lens = [1, 1]\npadded = 1\n"
        ),
        "$.traffic.step[0]: has more than max_num_seqs=2 rows",
    ),
    "too many tokens": (
        with_(
            "[scheduler]\nmax_num_batched_tokens = 4\n"
            "[[traffic.step]]\ndecode_lens = [1]\nprefill_chunks = [4]\n"
        ),
        "$.traffic.step[0]: has more than max_num_batched_tokens=4 tokens",
    ),
    "too long": (
        with_(
            "[scheduler]\nmax_model_len = 8\n"
            "[[traffic.step]]\nprefill_chunks = [4]\nprefill_contexts = [5]\n"
        ),
        "$.traffic.step[0]: has a context longer than max_model_len=8",
    ),
    "padded prefills": (
        with_("[[traffic.step]]\nprefill_chunks = [4]\npadded = 1\n"),
        "$.traffic.step[0].padded: only a batch of decodes is padded",
    ),
    "not TOML": ("schema = = 1\n", None),
    "not text": ("\udcff", None),
}
PARTS = {
    "unknown table": "$.shedule: unknown field; ",
    "a bad name": "$.name: expected str matching regex ",
    "a name that ends in a new line": "$.name: expected str matching regex ",
    "a number of many digits": "$: is not TOML: Exceeds the limit ",
    "rank is another word": "$.parallel.dcp_rank: ",
    "not TOML": "$: is not TOML: Invalid value (at line 1, column 10)",
    "not text": "$: cannot be read: 'utf-8' codec can't decode byte 0xff",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(tmp_path, name):
    text, expected = MISTAKES[name]
    path = tmp_path / "s.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    said = problem(path)
    if expected is None:
        assert said.startswith(PARTS[name])
    else:
        assert said.startswith(expected) if expected.endswith(": ") else said == expected


def test_of_two_unused_axes_the_first_is_named(write):
    path = write(with_("[matrix]\nzeta = [1]\nalpha = [1]\n"))
    assert problem(path).startswith("$.matrix.zeta: nothing in the scenario uses {zeta}")


@pytest.mark.parametrize(
    ("values", "labels", "folder"),
    [
        ('["x/y", "x_y"]', "'x=x/y' and 'x=x_y'", "x-x_y"),
        ('[1, "1"]', "'x=1' and 'x=1'", "x-1"),
        ('["a", "ä", "ö"]', "'x=ä' and 'x=ö'", "x-_"),
    ],
)
def test_two_cases_with_one_folder_would_overwrite_each_other(write, values, labels, folder):
    path = write(with_(f'attention_backend = "a{{x}}"\n[matrix]\nx = {values}\n'))
    assert problem(path) == (
        f"$.matrix: {labels} would both write their results to the folder {folder!r}"
    )


def test_a_byte_of_the_command_line_that_is_no_text(write):
    said = problem(write(HEAD), {"attention_backend": "\udcff"})
    assert said.startswith("$: holds what is not text: ")


def test_overrides_are_checked_like_the_file(write):
    path = write(HEAD)
    assert problem(path, {"scheduler.max_num_seqs": "many"}) == (
        '$.scheduler.max_num_seqs: expected int >= 1, got "many"'
    )
    assert problem(path, {"scheduler.max_seqs": 1}) == (
        "$.scheduler.max_seqs: unknown field; did you mean max_num_seqs?"
    )
    assert problem(path, {"name.x": 1}) == "$.name.x: --set: name is not a table"


def test_a_missing_file(tmp_path):
    said = problem(tmp_path / "none.toml")
    assert said.startswith("$: cannot be read: [Errno 2] No such file or directory")


def test_a_folder_stands_for_the_scenarios_below_it(write, tmp_path):
    one, other = write(HEAD, "b.toml"), write(HEAD, "a/c.toml")
    write("", "a/notes.txt")
    assert find(tmp_path) == [other, one]
    assert find(one) == [one]


def test_a_folder_without_a_scenario_and_a_wrong_path_are_errors(tmp_path):
    with pytest.raises(ScenarioError, match=r"\$: holds no scenario \(\*\.toml\)"):
        find(tmp_path)
    with pytest.raises(ScenarioError, match=r"\$: no such file or folder"):
        find(tmp_path / "none")


def test_values_are_frozen():
    with pytest.raises(AttributeError):
        Scheduler().max_num_seqs = 3
