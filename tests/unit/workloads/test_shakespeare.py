import torch

from presilicon import load_workload
from presilicon.workloads.shakespeare import CONTEXT, VOCABULARY, load_shakespeare, read_plays


def test_eight_plays_come_with_the_package() -> None:
    plays = read_plays()
    assert len(plays) == 8
    assert plays[0].startswith("HAMLET, PRINCE OF DENMARK")
    assert sum(map(len, plays)) == 1_058_430
    assert len(set("".join(plays))) == VOCABULARY


def test_windows_lie_side_by_side_and_targets_are_one_ahead() -> None:
    splits = load_shakespeare()
    characters = sorted(set("".join(read_plays())))
    inputs, targets = splits.train
    text = "".join(characters[number] for number in inputs[:3].flatten())
    assert text == read_plays()[0][: 3 * CONTEXT]
    assert torch.equal(inputs[0, 1:], targets[0, :-1])
    assert inputs[1, 0] == targets[0, -1]
    assert [len(split[0]) for split in (splits.train, splits.validation, splits.test)] == [14880, 822, 822]
    assert inputs.dtype == torch.int64


def test_no_validation_window_is_in_the_training_text() -> None:
    splits = load_shakespeare()
    train = "".join(chr(32 + number) for number in splits.train[0].flatten().tolist())
    windows = ["".join(chr(32 + number) for number in window) for window in splits.validation[0].tolist()]
    assert not [window for window in windows if window in train]


def test_scores_are_of_every_place_and_look_only_back() -> None:
    workload = load_workload("shakespeare-gpt")
    torch.manual_seed(0)
    model = workload.model().eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == 114_512
    inputs, targets = (part[:2] for part in workload.data().validation)
    scores = model(inputs).detach()
    assert scores.shape == (2, CONTEXT, VOCABULARY)
    changed = inputs.clone()
    changed[:, 40:] = 0
    assert torch.equal(model(changed)[:, :40], scores[:, :40])
    assert abs(float(workload.loss(scores, targets)) - 4.5) < 0.5
    assert 0 <= workload.accuracy(scores, targets) < 0.1
