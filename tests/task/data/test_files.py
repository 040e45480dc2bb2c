"""Files as finite tasks: whose columns are what, what is held out, and what is said of rows that repeat."""

from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rolltree.task.data.functions import COLUMNS, MESSAGES
from rolltree.task.items import TaskError
from rolltree.task.protocol import about, distinct
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from tests.task.data.toy import rows, sums


def whole(task, split):
    return list(islice(task.items(split), distinct(task, split)))


def every(task):
    return {item.prompt: item for split in ("train", "test") for item in whole(task, split)}


def test_gsm8ks_layout_gives_the_number_behind_the_hashes(tmp_path):
    path = rows(tmp_path / "g.jsonl", *({"question": f"q{k}", "answer": f"so {k}\n#### 1,00{k}"} for k in range(9)))
    task = load_task(path, reward="number")
    assert {p: i.answer for p, i in every(task).items()} == {f"q{k}": f"100{k}" for k in range(9)}
    assert "so 3" in every(task)["q3"].meta[COLUMNS]["answer"]


def test_verls_layout_gives_messages_the_ground_truth_and_what_the_reward_asks_for(tmp_path):
    made = [
        {"data_source": "d", "prompt": [{"role": "user", "content": f"q{k}"}], "ability": "math",
         "reward_model": {"style": "rule", "ground_truth": str(k)}, "extra_info": {"index": k, "item": f"i{k}"}}
        for k in range(12)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "v.parquet")
    task = load_task(str(tmp_path / "v.parquet"), reward="exact")
    item = every(task)["q7"]
    assert (item.id, item.answer, item.meta[COLUMNS]["data_source"]) == ("i7", "7", "d")
    assert list(item.meta[MESSAGES]) == [{"role": "user", "content": "q7"}]


def test_columns_can_be_named_and_reached_into(tmp_path):
    path = rows(tmp_path / "x.jsonl", *({"a": {"q": f"ask {k}"}, "b": k, "prompt": "not this"} for k in range(9)))
    task = load_task(f"{path}?prompt=a.q&answer=b", reward="exact")
    assert every(task)["ask 4"].answer == "4"
    with pytest.raises(TaskError, match=r"line 1 has no column 'c' \(--answer\); its columns are a, b, prompt"):
        load_task(path, answer="c", prompt="b", reward="exact")


def test_prompts_without_answers_suit_rewards_that_need_none(tmp_path):
    path = rows(tmp_path / "p.jsonl", *({"prompt": f"p{k}"} for k in range(9)))
    assert len(every(load_task(path, reward="format"))) == 9
    with pytest.raises(TaskError, match=r"line \d: field 'answer' is missing or empty, and the reward exact needs one"):
        load_task(path, reward=["format", "exact"])


def test_an_empty_answer_is_named_by_its_line(tmp_path):
    path = rows(tmp_path / "e.jsonl", {"prompt": "a", "answer": "1"}, "", {"prompt": "b", "answer": " "})
    with pytest.raises(TaskError, match=r"e.jsonl line 3: field 'answer' is missing or empty"):
        load_task(path, reward="exact")


def test_a_file_is_finite_each_pass_gives_all_items_once(tmp_path):
    task = load_task(sums(tmp_path / "s.jsonl"), reward="exact")
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 100)
    train, held = distinct(task, "train"), distinct(task, "test")
    assert train + held == 40
    drawn = [item.id for item in islice(task.items("train", 5), 2 * train)]
    assert len(set(drawn[:train])) == len(set(drawn[train:])) == train
    assert drawn[:train] != drawn[train:]


def test_any_two_prompts_give_a_training_and_a_held_out_item(tmp_path):
    for k in range(12):
        task = load_task(
            rows(tmp_path / f"{k}.jsonl", *({"prompt": f"{k}{x}", "answer": x} for x in "ab")), reward="exact"
        )
        assert (distinct(task, "train"), distinct(task, "test")) == (1, 1)


def test_held_out_items_are_a_share_a_file_or_a_column(tmp_path):
    path = sums(tmp_path / "s.jsonl", 400)
    assert 60 <= distinct(load_task(path, holdout="0.2", reward="exact"), "test") <= 100
    assert distinct(load_task(path, holdout=0, reward="exact"), "test") == 0
    with pytest.raises(TaskError, match=r"has no test items .* give more lines, or use --holdout"):
        next(load_task(path, holdout=0, reward="exact").items("test"))
    aside = rows(tmp_path / "t.jsonl", *({"question": f"{k}+2=", "answer": k + 2} for k in range(3)))
    task = load_task(path, holdout=aside, reward="exact")
    assert (distinct(task, "train"), distinct(task, "test")) == (400, 3)
    assert f"3 held-out items (from {aside})" in about(task)
    with pytest.raises(TaskError, match="--holdout 2 makes no sense"):
        load_task(path, holdout=2, reward="exact")
    with pytest.raises(TaskError, match=r"neither a share such as 0\.1 nor a file"):
        load_task(path, holdout="some", reward="exact")


def test_a_prompt_in_both_sets_is_refused_by_its_lines(tmp_path):
    path = sums(tmp_path / "s.jsonl")
    aside = rows(tmp_path / "t.jsonl", {"question": "7+1=", "answer": 8})
    with pytest.raises(TaskError, match=r"t.jsonl line 1 is held out and asks what .*s.jsonl line 8 asks in training"):
        load_task(path, holdout=aside, reward="exact")
    both = rows(tmp_path / "b.jsonl", *({"prompt": "x", "answer": "1", "split": s} for s in ("train", "test")))
    with pytest.raises(TaskError, match=r"line 2 is held out and asks what .*line 1 asks"):
        load_task(both, reward="exact")


def test_repeated_prompts_are_kept_for_training_named_by_line_and_held_out_once(tmp_path):
    asked = [("x", "1", "train"), ("y", "1", "test"), ("x", "2", "train"), ("y", "1", "test"), ("z", "3", "train")]
    lines = [{"prompt": p, "answer": a, "split": s} for p, a, s in asked]
    task = load_task(rows(tmp_path / "r.jsonl", *lines), reward="exact")
    assert (distinct(task, "train"), distinct(task, "test")) == (3, 1)
    assert len({item.id for item in whole(task, "train")}) == 3
    said = about(task)
    assert "line 1, 3 with different answers); all are kept" in said
    assert "line 2, 4); each is held out once" in said


def test_a_folder_is_read_through_datasets(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    rows(tmp_path / "set" / "train.jsonl", *({"question": f"q{k}", "answer": k} for k in range(20)))
    task = load_task(f"hf:{tmp_path / 'set'}:train", reward="exact")
    assert every(task)["q11"].answer == "11"
    with pytest.raises(TaskError, match=r"hf:.*:dev cannot be had .*check name and split"):
        load_task(f"hf:{tmp_path / 'set'}:dev", reward="exact")


def test_without_a_network_a_data_set_of_the_hub_is_looked_for_in_the_cache_alone(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: asked.append("hub"))
    monkeypatch.setattr("rolltree.task.data.source.hub_answers", lambda: False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    with pytest.raises(
        TaskError, match=r"hf:a/b:train is not in the local cache .*give the file, or the folder as hf:"
    ):
        load_task("hf:a/b:train", reward="exact")
    assert not asked
    assert not datasets.config.HF_HUB_OFFLINE


def test_one_item_is_not_named_as_several(tmp_path):
    task = load_task(sums(tmp_path / "s.jsonl", 2), reward="exact")
    assert "1 training item, 1 held-out item (" in about(task)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", "", "has no rows"),
        ("a.parquet", "no parquet", "is no Parquet file that can be read"),
        ("a.jsonl", '{"x": 1}', "no column of"),
        ("a.jsonl", '{"prompt": " ", "answer": 1}', "line 1: field 'prompt' is missing or empty"),
        ("a.jsonl", '{"prompt": [{"role": "user"}], "answer": 1}', "a message of 'prompt' needs role and content"),
        ("a.jsonl", '{"question": "x", "answer": "#### 1"}\n{"question": "y", "answer": "#### "}',
         "line 2: no answer stands behind ####"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_is_one_sentence(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskError) as error:
        load_task(str(tmp_path / name), reward="exact")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
