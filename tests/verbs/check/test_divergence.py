import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.runner.divergence import Divergence, find_divergence


@pytest.mark.parametrize(
    "line",
    [
        "loss: nan",
        "loss=nan",
        "loss = NaN",
        "Epoch 3/10 - loss: nan - accuracy: 0.5",
        "{'loss': nan, 'learning_rate': 1e-05, 'epoch': 0.1}",
        "{'loss': 'nan', 'epoch': '0.1'}",
        '{"step": 4, "loss": NaN}',
        '{"loss": Infinity}',
        "train_loss=inf val_loss=3.2",
        "grad norm: -inf",
        "epoch 3 loss nan acc 0.5",
        "loss is nan",
        "the loss went to inf",
        "step 10 | loss nan | 3.1 it/s",
        "3,nan,0.5",
        "3\tnan\t0.5",
        "10 2.5 nan",
        "nan",
        "-nan",
        "[nan, 0.5]",
        "tensor(nan, device='cuda:0', grad_fn=<MeanBackward0>)",
        "loss tensor([0.1, nan])",
        "loss: tensor(inf)",
        "np.float64(nan)",
        "ppl nan%",
        "it 5: 12.1 INF nan",
        "  9%|9   | 9/100 [00:01<00:10, 8.9it/s, loss=nan]",
        "\x1b[31mloss\x1b[0m: \x1b[1mnan\x1b[0m",
        "reward:nan",
        "loss -> nan",
    ],
)
def test_a_number_that_is_none_is_found(line: str) -> None:
    assert find_divergence(line.encode()) is not None


@pytest.mark.parametrize(
    "line",
    [
        "finance info banana Nancy infinite nanometre",
        "INFO: starting",
        "12:00:01 INF starting 3 workers",
        "[12:00:01 INF] starting",
        "checking for NaN or inf in the data",
        "dropped 5 NaN values",
        "no NaN found",
        "nan_count=0 isnan=False",
        "XGBClassifier(max_depth=3, missing=nan, n_jobs=4)",
        "SimpleImputer(fill_value=nan)",
        "best_val_loss=inf",
        "best loss: 0.3, patience: inf",
        "max_grad_norm=inf",
        "Box(-inf, inf, (17,), float32)",
        "(-inf, 0.5]  12",
        "Namespace(limit=inf, lr=0.1)",
        "reading data/nan/inf.txt and model-inf",
        "x = float('nan')",
        "y = float('inf')",
        "NaN: 0",
        "/usr/lib/inf",
        "nan.log written",
        "loss: 0.31",
        "",
    ],
)
def test_words_and_bounds_are_no_numbers_lost(line: str) -> None:
    assert find_divergence(line.encode()) is None


def test_the_first_of_several_lines_is_named() -> None:
    text = b"step 1 loss: 0.5\nstep 2 loss: nan\nstep 3 loss: nan\n"
    assert find_divergence(text) == Divergence(2, "step 2 loss: nan", "NaN")


def test_a_progress_bar_that_draws_over_itself_is_read_piece_by_piece() -> None:
    found = find_divergence(b"a\n1/3 loss=0.5\r2/3 loss=inf\r3/3 loss=inf\n")
    assert found == Divergence(2, "2/3 loss=inf", "inf")


@given(st.text(alphabet=st.characters(exclude_categories=("L", "Cs"))))
def test_a_line_without_letters_never_alarms(text: str) -> None:
    assert find_divergence(text.encode()) is None


@given(st.floats(), st.sampled_from(("loss: {}", "loss={}", "[{}]", "1 {} 2")))
def test_python_s_own_way_to_write_numbers_is_read(number: float, line: str) -> None:
    found = find_divergence(line.format(number).encode())
    is_finite = number - number == 0
    assert (found is None) == is_finite


@given(st.binary())
def test_bytes_of_any_kind_are_read(text: bytes) -> None:
    find_divergence(text)
